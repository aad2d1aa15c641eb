"""The memory that AI agents keep: immutable transcripts, refined by Dagster, searched over HTTP and MCP."""
