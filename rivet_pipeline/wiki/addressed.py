"""Tells text that addresses a machine (the miner, the summarizer, an assistant) from what people say of their work.

Such a text may stand in any session: pasted, quoted, or put there so that it ends up on a page. Pure functions.
"""

from __future__ import annotations

import re

from rivet_pipeline.summaries.sentences import split_prose

_MACHINE = (
    r"(?:miner|summari[sz]er|tagger|(?:ai |coding |helpful )?assistant|(?:large )?(?:language )?model|llm|ai"
    r"|chatbot|bot|(?:ai |coding )?agent|gpt|chatgpt|claude)"
)
_FORMER = r"(?:previous|prior|above|earlier|preceding|former|other|existing|system|original)"
_ADDRESSED = re.compile(
    rf"\b(?:you are|you're|you act as|act as|pretend to be|du bist)\b[^.!?\n]{{0,40}}?\b{_MACHINE}\b"
    rf"|\b(?:ignore|disregard|forget|override|skip)\s+(?:(?:all|any|every|each|of|the|your|my|these|those)\s+)*{_FORMER}\s+"
    r"(?:instructions?|prompts?|messages?|rules?|texts?|context|directions?)\b"
    r"|\b(?:ignore|disregard|forget|override)\s+(?:all\s+)?your\s+(?:instructions?|prompts?|rules?|guidelines)\b"
    r"|\b(?:ignoriere|vergiss)\b[^.!?\n]{0,30}\banweisung(?:en)?\b"
    r"|\b(?:note|notice|message|instructions?|attention|dear)\b(?:\s+(?:to|for))?(?:\s*[:,])?\s+(?:the\s+)?"
    rf"(?:wiki |memory )?{_MACHINE}\s*[:,]"
    r"|\b(?:in|into|to)\s+your\s+(?:summary|output|patches|wiki)\b"
    r"|\bwhen\s+(?:you\s+)?(?:summari[sz]e|summari[sz]ing|mine|mining|tag|tagging)\s+(?:this|the)\s+"
    r"(?:session|conversation|text|transcript|leaf|chat)\b"
    r"|<\|?/?(?:im_start|im_end|system|assistant)\|?>|\[/?INST\]",
    re.IGNORECASE,
)
_OBJECT = re.compile(r"\A\s*(?:\{|\[\s*[{\"'])|\{\s*\\?[\"'\u201c][^\"'\u201c\u201d{}\n]{1,60}\\?[\"'\u201d]\s*:")
#: What only counts at the beginning of a sentence.
_OPENS = re.compile(
    r"\A[\s\"'`*>-]*(?:output\s*:|system(?: prompt)?\s*:"
    rf"|(?:hey |dear )?(?:miner|summari[sz]er|tagger|(?:wiki |memory ){_MACHINE})\s*[:,]"
    r"|(?:respond|reply|output)\b[^.!?\n]{0,20}\b(?:json|only|exactly|nothing else)\b)",
    re.IGNORECASE,
)


def addresses_machine(text: str) -> bool:
    """Whether a text, or a sentence of it, tells a machine what to do."""
    return _ADDRESSED.search(text) is not None or any(map(_OPENS.search, (text, *split_prose(text))))


def holds_object(text: str) -> bool:
    """Whether a sentence holds an object of JSON: data, and nothing that somebody says."""
    return _OBJECT.search(text) is not None
