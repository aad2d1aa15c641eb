"""The current version of every refinement and prompt: the one place that holds them.

A number here is raised when the same input would now give another output. It becomes the asset's code version and is
stored on each row, so that a backfill redoes exactly the rows that an older version made.
"""

#: Leaf, branch and root summaries: rules, prompts and the extractive summarizer together (seed: pipeline v5).
SUMMARY_PIPELINE_VERSION = 5

#: How a message or summary becomes the texts that are embedded (composition and chunking).
EMBEDDING_VERSION = 1

#: How a tool call's text is rendered, asked for and checked. A text is written once: a raised number is for new ones.
TOOL_TEXT_VERSION = 1

#: How a leaf's tags are asked for, found and checked. Leaves done under an older number are asked about again.
TAGS_VERSION = 2

#: How leaves are mined for the wiki: rules, prompt and the miner without a model together (seed: version 4 is
#: the first that reads tags). Leaves that an older one mined are mined once more.
WIKI_PIPELINE_VERSION = 5

#: How a wiki page is made of its patches. Pages of an older version are made again of the same patches.
WIKI_PAGE_VERSION = 2

#: How the corpus statistics are counted.
LEXICON_VERSION = 3

#: What `retrieval_quality` asks and how it is measured.
RETRIEVAL_QUALITY_VERSION = 1

#: What the `messages` asset reports of a day.
MESSAGES_VERSION = 1

#: The first line of every prompt the pipeline sends to a chat model, in its system text and in its user text. A session
#: whose first text starts with it is our own model traffic: capture marks it as noise and nothing refines it. Anywhere
#: else it is somebody's quotation.
OWN_TRAFFIC_MARKER = "[rivet-pipeline model request: not a conversation, never to be captured or summarised]"
