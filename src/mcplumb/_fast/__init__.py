"""Speed tricks that rely on internals of CPython or asyncio: one file each, all switched off by ``MCPLUMB_PLAIN=1``."""
