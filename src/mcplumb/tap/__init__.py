"""The tap, and the uses of its recordings: transcripts, findings, comparisons, replays and exports."""
