"""Exit codes of commands, and the one line on stderr for an expected failure. A traceback is a bug."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, Final

import typer

from oncelog.cli.support.terminal import print_line

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
EXTRAS: Final = {
    "pyspark": "spark",
    "pyarrow": "spark",
    "numpy": "spark",
    "pandas": "spark",
    "deltalake": "delta",
    "pyiceberg": "iceberg",
    "sqlalchemy": "iceberg",
    "cryptography": "security",
    "jwt": "security",
    "kazoo": "cluster",
    "puresasl": "cluster",
    "jinja2": "console",
    "markupsafe": "console",
    "starlette": "console",
    "uvicorn": "console",
    "matplotlib": "plots",
    "fastavro": "registry",
    "google": "registry",
    "jsonschema_rs": "registry",
}
"""The extra that brings a package, of those that commands need."""

_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
ClickException: type[Exception] = typer.BadParameter.__mro__[2]  # public in no version of typer alike


def exit_code_of(error: BaseException) -> int:
    """The exit code for ``error``: prints an expected failure, raises a bug."""
    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return EXIT_INTERRUPTED
    if isinstance(error, BrokenPipeError):
        _forget_stdout()
        return 0
    return _failed(error)


def _failed(error: BaseException) -> int:
    if isinstance(error, ClickException):
        return _usage_failed(error)
    from oncelog.client.errors import ClientError, ConfigError  # help has no use for it

    if isinstance(error, ClientError):
        complain(str(error))
        return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED
    from oncelog.schemas.client.errors import RegistryConfigError, RegistryError
    from oncelog.schemas.schema import SchemaError

    if isinstance(error, RegistryError | SchemaError):
        complain(str(error))
        return EXIT_USAGE if isinstance(error, RegistryConfigError) else EXIT_FAILED
    if isinstance(error, ModuleNotFoundError):
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is not None:
            return complain(f"{error.name} is not installed; install it with: pip install 'oncelog[{extra}]'")
    if isinstance(error, OSError) and error.filename is not None:
        return complain(f"{error.filename}: {(error.strerror or str(error)).lower()}")
    if isinstance(error, OSError) and error.errno in _UNWRITABLE:  # without a name: the output, as a rule
        _forget_stdout()
        failure = "reading or writing failed" if error.errno == errno.EIO else "cannot write the output"
        return complain(f"{failure}: {os.strerror(error.errno).lower()}")
    raise error


def _usage_failed(error: Any) -> int:
    """Prints a usage error in one line, or the help of a group called without a sub-command."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return EXIT_USAGE
    context = getattr(error, "ctx", None)
    path = "oncelog" if context is None else context.command_path
    message = error.format_message().rstrip(".").replace("\n\t", " ").replace("\n", " ")
    message = message.replace(": Value error, ", ": ")  # pydantic's
    print_line(f"{path}: {message} (see {path} --help)", err=True)
    return int(error.exit_code)


def complain(text: str) -> int:
    """Print one line about a failure, and return its exit code."""
    print_line(f"oncelog: {' '.join(text.split())}", err=True)
    return EXIT_FAILED


def _forget_stdout() -> None:
    """Redirects stdout after its reader closed it, so that the interpreter's final flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
