"""Ports on which commands listen."""

import os
import socket

from leads_pipeline.errors import SettingsError

HOST = "127.0.0.1"


def refuse_taken(port: int, host: str = HOST) -> None:
    """Refuse a port before anything is started. Raises SettingsError if nobody can listen on it."""
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        raise SettingsError(f"Can't listen on {host}:{port}: {why}. Name another port with --port.") from None
