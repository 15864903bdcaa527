"""Contexts: names for clusters, kept in `contexts.json` in the user's configuration directory.

The file is {"current": NAME or null, "contexts": {NAME: {"namesrvAddr": "host:port;host:port"}}}.
"""

from dataclasses import dataclass, field
from pathlib import Path

from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status
from mq.client.operations.errors import NotFound


@dataclass
class Contexts:
    """The contexts of a user. `save` writes them back."""

    path: Path
    current: str | None = None
    contexts: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def load(cls, directory: Path) -> "Contexts":
        """Read the user's file; without a file there are no contexts. Raises CommandError."""
        return cls.of_file(directory / "contexts.json")

    @classmethod
    def of_file(cls, path: Path) -> "Contexts":
        """Read a file; without a file there are no contexts. Raises CommandError for invalid
        ones."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return cls(path)
        except OSError as error:
            raise CommandError(
                f"cannot read {path}: {error.strerror}", status=Status.CONFIG
            ) from error
        import json

        try:
            read = json.loads(content)
            contexts = {str(name): dict(values) for name, values in read["contexts"].items()}
            current = read.get("current")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CommandError(
                f"{path} is not a contexts file: {error}",
                hint=f"correct it, or remove it and add the contexts again: rm {path}",
                status=Status.CONFIG,
            ) from error
        return cls(path, current if current in contexts else None, contexts)

    def get(self, name: str) -> dict[str, str]:
        """The settings of context `name`. Raises NotFound."""
        try:
            return self.contexts[name]
        except KeyError:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise NotFound(
                f"no context {name!r} (known: {known})",
                hint=f"add it: mq context add {name} -n HOST:9876",
            ) from None

    def save(self) -> None:
        """Write the file atomically."""
        import json

        from mq.client.operations import local_files

        text = json.dumps({"current": self.current, "contexts": self.contexts}, indent=2)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Private, because a context may hold secrets one day.
            local_files.put(self.path, f"{text}\n".encode(), mode=0o600)
        except OSError as error:
            raise CommandError(
                f"cannot write {self.path}: {error.strerror}", status=Status.CANNOT_CREATE
            ) from error
