"""Which lines of a log GitHub's runner obeys: a small model of how it reads workflow commands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NAMES = frozenset(
    {"error", "warning", "notice", "debug", "group", "endgroup", "echo"}
    | {"add-mask", "add-path", "add-matcher", "remove-matcher", "set-env", "set-output", "save-state"}
)
_IN_TEXT = {"%0D": "\r", "%0A": "\n", "%25": "%"}
_IN_PROPERTY = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}


@dataclass
class Command:
    """A command that was obeyed."""

    name: str
    text: str
    properties: dict[str, str] = field(default_factory=dict)


@dataclass
class Runner:
    """Reads lines as the runner does, until it is told to stop, and again after the token.

    Commands begin a line (`::name key=value::text`, blanks before it are skipped), or stand anywhere in
    it in the old form (`##[name key=value;]text`). Names are compared without their case.
    """

    obeyed: list[Command] = field(default_factory=list)
    token: str | None = None
    stops: int = 0

    def read(self, log: str) -> list[Command]:
        """Take a whole log, and return all commands that were obeyed so far."""
        for line in re.split(r"\r\n|\r|\n", log):
            self._line(line)
        return self.obeyed

    def _line(self, line: str) -> None:
        names = NAMES | {"stop-commands"} | ({self.token} if self.token else set())
        command = _parsed(line, names)
        if command is None:
            return
        if self.token is not None:
            if command.name == self.token:
                self.token = None
        elif command.name == "stop-commands":
            self.token = command.text
            self.stops += 1
        else:
            self.obeyed.append(command)


def _parsed(line: str, names: set[str] | frozenset[str]) -> Command | None:
    new = re.match(r"\s*::(.*?)::(.*)$", line, re.DOTALL)
    if new is not None and (found := _command(new[1], new[2], names, ",", _IN_TEXT, _IN_PROPERTY)):
        return found
    old = re.search(r"##\[(.*?)\](.*)$", line, re.DOTALL)
    marks = {"%3B": ";", "%0D": "\r", "%0A": "\n", "%5D": "]", "%25": "%"}
    return _command(old[1], old[2], names, ";", marks, marks) if old is not None else None


def _command(
    head: str,
    text: str,
    names: set[str] | frozenset[str],
    joint: str,
    in_text: dict[str, str],
    in_property: dict[str, str],
) -> Command | None:
    name, _, rest = head.partition(" ")
    if name.lower() not in {each.lower() for each in names}:
        return None
    pairs = [pair.partition("=") for pair in rest.strip().split(joint) if pair]
    properties = {key: _plain(value, in_property) for key, equals, value in pairs if equals and value}
    return Command(name.lower(), _plain(text, in_text), properties)


def _plain(text: str, marks: dict[str, str]) -> str:
    for mark, character in marks.items():
        text = text.replace(mark, character)
    return text
