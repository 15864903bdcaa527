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
        """Read the user's file; no file means no contexts. Raises CommandError for a broken one."""
        return cls.of_file(directory / "contexts.json")

    @classmethod
    def of_file(cls, path: Path) -> "Contexts":
        """Read a file; no file means no contexts. Raises CommandError for a broken one."""
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
                f"{path} is not a file of contexts: {error}",
                hint=f"correct it, or remove it and add the contexts again: rm {path}",
                status=Status.CONFIG,
            ) from error
        return cls(path, current if current in contexts else None, contexts)

    def get(self, name: str) -> dict[str, str]:
        """The settings of context `name`. Raises NotFound."""
        try:
            return self.contexts[name]
        except KeyError:
            known = ", ".join(sorted(self.contexts)) or "there are none"
            raise NotFound(
                f"no context {name!r} (known: {known})",
                hint=f"add it: mq context add {name} -n HOST:9876",
            ) from None

    def save(self) -> None:
        """Write the file so that a reader sees the old content or the new, never half."""
        import json

        from mq.client.operations import local_files

        text = json.dumps({"current": self.current, "contexts": self.contexts}, indent=2)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Only the owner reads it: a context may come to hold secrets.
            local_files.put(self.path, f"{text}\n".encode(), mode=0o600)
        except OSError as error:
            raise CommandError(
                f"cannot write {self.path}: {error.strerror}", status=Status.CANNOT_CREATE
            ) from error
