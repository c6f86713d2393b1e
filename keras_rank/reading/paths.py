"""Checks of paths, in a module that imports no other module of the package.

The command runs this file before it imports the package, which imports Keras.
"""

import difflib
import glob
import os
import pathlib
import stat
from collections.abc import Mapping, Sequence
from typing import Any

# The names of standard input.
_STREAMS = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def matching_files(argument: str, path: str) -> list[str]:
    """Returns the files of a path or pattern. Raises `ValueError` if one is invalid."""
    if "://" in path:
        raise ValueError(
            f"`{argument}` should be files of this machine, or a table, such as "
            f"`duckdb.read_parquet({path!r})`. Received: {path!r}"
        )
    files = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
    if not files:
        folder, name = os.path.split(path)
        folder = os.path.abspath(folder)
        names = os.listdir(folder) if os.path.isdir(folder) else []
        close = difflib.get_close_matches(name, names, n=1)
        question = f". Did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"`{argument}` should name files that exist. Received: {path!r}, which "
            f"matches no file in {folder!r}{question}"
        )
    for file in files:
        if os.path.isdir(file):
            raise ValueError(
                f"`{argument}` should be files. Received: {file!r}, which is a folder: "
                f"give {os.path.join(file, '*.parquet')!r} for the files in it"
            )
        if os.path.exists(file) and stat.S_ISFIFO(os.stat(file).st_mode):
            raise ValueError(
                f"`{argument}` should be files that can be read several times. "
                f"Received: {file!r}, which is a pipe: give '-' for a run from "
                "standard input, or write a file"
            )
        if not os.access(file, os.R_OK):
            exists = os.path.exists(file)
            reason = "has no permission to be read" if exists else "is a broken link"
            raise ValueError(
                f"`{argument}` should be files that can be read. Received: {file!r}, "
                f"which {reason}"
            )
    return files


def check_output(
    argument: str, path: str | os.PathLike[str], suffixes: Sequence[str]
) -> pathlib.Path:
    """Returns the path of a file to write.

    Raises `ValueError` for other suffixes and for folders that do not exist.
    """
    file = pathlib.Path(path)
    is_named = file.suffix.lower() in suffixes and not file.is_dir()
    if not (is_named and file.parent.is_dir()):
        raise ValueError(
            f"{argument} should name a file that ends in {suffixes[0]}, in a folder "
            f"that exists. Received: {str(path)!r}"
        )
    return file


def check_command(options: Mapping[str, Any]) -> None:
    """Raises `ValueError` if the command cannot read an input or write an output."""
    if not options["files"]:
        raise ValueError(
            "There should be files to read, before the options or after `--`, as in "
            "`-m map -- qrels run`. Received: none"
        )
    inputs = [("files", file) for file in options["files"]]
    inputs += [(f"--{x}", options.get(x)) for x in ("qrels", "baseline")]
    inputs = [(argument, file) for argument, file in inputs if file is not None]
    streams = [file for _, file in inputs if file in _STREAMS]
    if len(streams) > 1:
        raise ValueError(
            "Standard input should be given once, as it can be read only once. "
            f"Received: {' and '.join(streams)}"
        )
    for argument, file in inputs:
        if file != "-":
            matching_files(argument, file)
    if options.get("per_list") is not None:
        # `compare` recognizes a file of values per query by its suffix.
        check_output("--per-list", options["per_list"], (".parquet",))
    if options["command"] == "report" and options["output"] is not None:
        check_output("--output", options["output"], (".html", ".htm"))
