"""A Dockerfile's steps without Docker: read, and run under folders that stand for the stages.

As much of the language as our own Dockerfile uses. An instruction beyond that is an error, so that
nothing is passed over.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

_KEPT = {"USER", "VOLUME", "EXPOSE", "CMD", "HEALTHCHECK"}
# Folders of the image. Other absolute paths (/dev, /usr) mean those of this machine.
_OF_THE_IMAGE = re.compile(r"(?<![\w./])/(?=(?:app|data|opt)\b)")


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, arguments) in order; continued lines are joined, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = [line.strip().split(None, 1) for line in joined.splitlines() if line.strip()]
    return [(name, arguments.strip()) for name, arguments in found]


@dataclass(slots=True)
class Stage:
    """One stage, built: its root folder, and what it says about running."""

    base: str
    root: Path
    workdir: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def place(self, path: str) -> Path:
        """Where a path of the image is on this machine."""
        return self.root / str(PurePosixPath(self.workdir, path)).lstrip("/")

    def command(self, instruction: str) -> list[str]:
        """The program and arguments of CMD or HEALTHCHECK, in their exec form."""
        listed = json.loads("[" + self.said[instruction].partition("[")[2])
        return [_OF_THE_IMAGE.sub(f"{self.root}/", each) for each in listed]

    def environment(self) -> dict[str, str]:
        """The variables of a process in the image, and no other."""
        return {
            name: _OF_THE_IMAGE.sub(f"{self.root}/", value).replace("$PATH", os.defpath)
            for name, value in self.env.items()
        }


class Context:
    """The files that a build may copy: the repository without what `.dockerignore` leaves out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lines = (folder / ".dockerignore").read_text().splitlines()
        self._patterns = [line for line in lines if line and not line.startswith("#")]

    def has(self, path: str) -> bool:
        ignored = False
        parts = PurePosixPath(path).parts
        parents = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        for pattern in self._patterns:
            if any(_matches(parent, pattern.lstrip("!")) for parent in parents):
                ignored = not pattern.startswith("!")
        return not ignored

    def files(self, source: str) -> list[Path]:
        """The files of a COPY's source, relative to the repository."""
        start = self.folder / source
        found = sorted(start.rglob("*")) if start.is_dir() else [start]
        relative = [each.relative_to(self.folder) for each in found if each.is_file()]
        return [each for each in relative if self.has(each.as_posix())]


def _matches(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatchcase(PurePosixPath(path).name, pattern[3:])
    return path.count("/") == pattern.count("/") and fnmatchcase(path, pattern)


def build(folder: Path, roots: Path) -> Stage:
    """Run all stages of the folder's Dockerfile; the last one is the image."""
    context, stages = Context(folder), {}
    stage = Stage("", roots)
    for name, arguments in instructions((folder / "Dockerfile").read_text()):
        match name:
            case "FROM":
                base, _, called = arguments.partition(" AS ")
                stage = stages[called or "image"] = Stage(base, roots / (called or "image"))
                stage.root.mkdir()
            case "WORKDIR":
                stage.workdir = arguments
                stage.place(".").mkdir(parents=True, exist_ok=True)
            case "ENV":
                stage.env |= dict(each.split("=", 1) for each in arguments.split())
            case "COPY":
                _copy(arguments, context, stage, stages)
            case "RUN":
                _run(arguments, stage)
            case _ if name in _KEPT:
                stage.said[name] = arguments
            case _:
                raise ValueError(f"expected an instruction that is known here, got {name}")
    return stage


def _copy(arguments: str, context: Context, stage: Stage, stages: dict[str, Stage]) -> None:
    words = arguments.split()
    flags = dict(word[2:].split("=") for word in words if word.startswith("--"))
    source, target = (word for word in words if not word.startswith("--"))
    if "from" in flags:
        # Linked, not copied: nobody changes them.
        shutil.copytree(stages[flags["from"]].place(source), stage.place(target), symlinks=True,
                        copy_function=os.link, dirs_exist_ok=True)  # fmt: skip
        return
    files = context.files(source)
    if not files:
        raise ValueError(f"expected files for COPY {source}, got none")
    for file in files:
        beside = source if (context.folder / source).is_dir() else os.path.dirname(source)
        place = stage.place(target) / file.relative_to(beside)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(context.folder / file, place)


def _run(command: str, stage: Stage) -> None:
    here = _OF_THE_IMAGE.sub(f"{stage.root}/", command)
    if os.geteuid():  # only root gives files away
        here = re.sub(r"--(owner|group)=\d+ ", "", here)
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    subprocess.run(
        ["/bin/sh", "-ec", here], cwd=stage.place("."), env=os.environ | {"PATH": path}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
