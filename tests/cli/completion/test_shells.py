"""The completions, in real shells, against our own daemons."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mq.daemons.standalone import Standalone
from tests.cli.support import Mq

SCRIPTS = Path(__file__).resolve().parents[3] / "completions"

BASH = """
source "$1"
COMP_LINE=$2 COMP_POINT=${#2}
spaced=${2//:/ : }; spaced=${spaced//=/ = }
read -ra COMP_WORDS <<<"$spaced"
[[ $2 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { :; }  # it works under readline only
_mq
printf '%s\\n' "${COMPREPLY[@]}"
"""

# Readline replaces the part after the last : or =, so bash gets that.
CASES = [
    ("mq topicRou", ["topicRoute"]),
    ("mq TOPICROU", ["topicRoute"]),
    ("mq topic-rou", ["topic-route"]),
    ("mq context us", ["use"]),
    ("mq topicRoute --li", ["--list"]),
    ("mq topicRoute -t TBW", ["TBW102"]),
    ("mq topic-route -t TBW", ["TBW102"]),
    ("mq topicRoute --topic=TBW", ["--topic=TBW102"]),
    ("mq updateTopic -c Def", ["DefaultCluster"]),
    ("mq updateTopic -p ", ["2", "4", "6"]),
    ("mq updateTopic --order=t", ["--order=true"]),
    ("mq clusterList -o j", ["json"]),
    ("mq context use pr", ["prod"]),
    ("mq help topicRou", ["topicRoute"]),
    ("mq deleteAccessConfig --accessK", ["--accessKey"]),
    ("mq nonesuch -t ", []),
    ("mq spark explain cou", ["count"]),
    ("mq spark submit cou", ["count"]),
    ("mq spark submit count --topic-p", ["--topic-pattern"]),
    ("mq spark submit lag-report --topic-p", []),
    ("mq spark submit count --topic TBW", ["TBW102"]),
    ("mq spark submit count --deploy-m", ["--deploy-mode"]),
    # options before the command
    ("mq --outp", ["--output"]),
    ("mq -o j", ["json"]),
    ("mq --output=j", ["--output=json"]),
    ("mq --context pr", ["prod"]),
    ("mq --utc -o json topicRou", ["topicRoute"]),
    ("mq --utc -o json topicRoute -t TBW", ["TBW102"]),
    ("mq --utc context us", ["use"]),
    # nouns, then verbs
    ("mq grou", ["group"]),
    ("mq group se", ["seek"]),
    ("mq topic rou", ["route"]),
    ("mq topic route --li", ["--list"]),
    ("mq topic route -t TBW", ["TBW102"]),
    ("mq bench end-to-end --war", ["--warm"]),
    # a word that is a command and the start of others
    ("mq broker --printC", ["--printConfigItem"]),
    ("mq broker --set x --printC", ["--printConfigItem"]),
    ("mq broker dra", ["drain"]),
    # words that no option introduces
    ("mq topicRoute TBW", ["TBW102"]),
    ("mq topic route TBW", ["TBW102"]),
    ("mq topicRoute -l TBW", ["TBW102"]),
    ("mq topicRoute TBW102 TBW", []),
    ("mq topicRoute -t TBW102 TBW", []),
    ("mq group seek TOOLS_CON", ["TOOLS_CONSUMER"]),
    ("mq group seek billing TBW", ["TBW102"]),
    ("mq group seek -t Orders TOOLS_CON", ["TOOLS_CONSUMER"]),
    ("mq group seek --group=billing TBW", ["TBW102"]),
    ("mq group seek -s 1h billing TBW", ["TBW102"]),
]


def surroundings(cluster: Mq, tmp_path: Path) -> dict[str, str]:
    """Variables with which a shell finds this `mq`, and a cluster."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "mq"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m mq "$@"\n')
    command.chmod(0o755)
    cluster("context", "add", "prod", "-n", "10.0.0.1:9876")
    return {
        **cluster.variables,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "MQ_CACHE_DIR": str(tmp_path / "cache"),
        "TERM": "dumb",
    }


def shell(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed; .ci/run installs it")
        pytest.skip(f"{name} is not installed")
    return path


def ran(arguments: Sequence[str | Path], variables: dict[str, str]) -> str:
    ended = subprocess.run(
        list(map(str, arguments)), env=variables, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    return ended.stdout


def test_bash_completes(cluster: Mq, tmp_path: Path) -> None:
    variables = surroundings(cluster, tmp_path)
    for line, expected in CASES:
        found = ran([shell("bash"), "-c", BASH, "-", SCRIPTS / "bash/mq", line], variables).split()
        assert found == [word.split("=")[-1] for word in expected], line


def test_bash_completes_addresses_behind_their_colon(cluster: Mq, tmp_path: Path) -> None:
    variables = surroundings(cluster, tmp_path)
    address = cluster("clusterList", "-o", "json").json["data"][0]["brokerAddr"]
    host, port = address.split(":")
    line = f"mq updateTopic -b {host}:{port[0]}"
    assert ran([shell("bash"), "-c", BASH, "-", SCRIPTS / "bash/mq", line], variables).split() == [
        port
    ]


def test_bash_quotes_what_others_have_named(cluster: Mq, tmp_path: Path) -> None:
    variables = surroundings(cluster, tmp_path)
    key = "$(touch${IFS}made);'x"
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Named|sh")
    assert cluster("sendMessage", "-t", "Named|sh", "-p", "x", "-k", key).status == 0
    for line, expected in (
        ("mq tail Name", r"Named\|sh"),
        (r"mq tail Named\|", r"Named\|sh"),
        (r"mq queryMsgByKey -t Named\|sh -k $", None),
    ):
        found = ran([shell("bash"), "-c", BASH, "-", SCRIPTS / "bash/mq", line], variables).strip()
        if expected is None:
            assert ran([shell("bash"), "-c", f"printf %s {found}"], variables) == key
        else:
            assert found == expected


def test_fish_completes(cluster: Mq, tmp_path: Path) -> None:
    variables = surroundings(cluster, tmp_path)
    for line, expected in CASES:
        if line in ("mq TOPICROU", "mq topic-rou"):
            continue  # fish offers the names in their spelling, and finds them in any case
        script = f"source {SCRIPTS}/fish/mq.fish; complete -C '{line}'"
        found = ran([shell("fish"), "--no-config", "-c", script], variables).splitlines()
        assert sorted(row.split("\t")[0] for row in found) == sorted(expected), line


# zsh completes only at a terminal: here a terminal of its own, one line after the other.
ZSH = """
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PS1= PS2= RPS1=; unsetopt zle_bracketed_paste; fpath=($1 \\$fpath)"
zpty -w z 'autoload -Uz compinit; compinit -u -D; bindkey "^I" complete-word'
zpty -w z 'show() { zle -R; print -rn -- "<<$BUFFER>>"SHO""WN; BUFFER=; zle accept-line; }'
zpty -w z 'zle -N show; bindkey "^X" show; stty -echo; print READY''NOW'
zpty -r z text '*READYNOW*' >/dev/null
shift
for line; do
  zpty -w -n z "$line"$'\\t\\x18'
  zpty -r z text '*SHOWN*'
  print -r -- $text
done
zpty -d z
"""
IN_ZSH = [
    ("mq topicRou", "mq topicRoute "),
    ("mq context us", "mq context use "),
    ("mq topicRoute -t TBW", "mq topicRoute -t TBW102 "),
    ("mq topicRoute --topic=TBW", "mq topicRoute --topic=TBW102 "),
    ("mq update-topic -c Def", "mq update-topic -c DefaultCluster "),
    ("mq clusterList -o j", "mq clusterList -o json "),
    ("mq context use pr", "mq context use prod "),
    ("mq spark submit cou", "mq spark submit count "),
    ("mq spark submit count --topic-p", "mq spark submit count --topic-pattern="),
    ("mq spark submit count --topic TBW", "mq spark submit count --topic TBW102 "),
    ("mq --outp", "mq --output="),
    ("mq --context pr", "mq --context prod "),
    ("mq --utc -o json topicRou", "mq --utc -o json topicRoute "),
    ("mq --utc -o json topicRoute -t TBW", "mq --utc -o json topicRoute -t TBW102 "),
    ("mq group se", "mq group seek "),
    ("mq topic route --li", "mq topic route --list "),
    ("mq broker --printC", "mq broker --printConfigItem "),
    ("mq topic route TBW", "mq topic route TBW102 "),
    ("mq group seek billing TBW", "mq group seek billing TBW102 "),
    ("mq group seek -t Orders TOOLS_CON", "mq group seek -t Orders TOOLS_CONSUMER "),
    ("mq group seek -g billing TBW", "mq group seek -g billing TBW102 "),
    ("mq group seek --group=billing TBW", "mq group seek --group=billing TBW102 "),
    ("mq bench end-to-end --war", "mq bench end-to-end --warm="),
]


@pytest.fixture(scope="module")
def completed_in_zsh(
    standalone: Standalone, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Return each line and its completion. zsh takes a second to start."""
    folder = tmp_path_factory.mktemp("zsh")
    cluster = Mq(folder / "config", {"NAMESRV_ADDR": standalone.name_server_address})
    lines = [line for line, _ in IN_ZSH]
    text = ran(
        [shell("zsh"), "-f", "-c", ZSH, "-", SCRIPTS / "zsh", *lines], surroundings(cluster, folder)
    )
    return dict(zip(lines, re.findall("<<([^<>]*)>>SHOWN", text), strict=True))


@pytest.mark.parametrize(("line", "expected"), IN_ZSH)
def test_zsh_completes(line: str, expected: str, completed_in_zsh: dict[str, str]) -> None:
    assert completed_in_zsh[line] == expected


def test_every_option_that_names_a_topic_group_or_cluster_is_completed() -> None:
    from mq.cli.manual.descriptions import commands

    for command in commands():
        for option in command.own:
            if option.metavar in ("TOPIC", "GROUP", "CLUSTER", "BROKER"):
                assert option.kind, f"{command.name} {option.flags}"
