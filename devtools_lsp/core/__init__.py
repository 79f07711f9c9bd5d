"""The pure middle: values and algorithms with no I/O, no clock and no asyncio."""
