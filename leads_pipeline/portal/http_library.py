"""The HTTP library, imported in this place alone.

The development of httpx has stopped. httpx2 is its maintained continuation with the same interface.
A change to it costs one line: `import httpx2 as httpx`.
"""

import httpx

__all__ = ["httpx"]
