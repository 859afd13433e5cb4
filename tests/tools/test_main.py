"""The command line as a whole: help, exit codes, pipes, interrupts, and folders as users have them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from shardmix import __version__
from shardmix.tools import main
from tests.conftest import ROOT

pytestmark = pytest.mark.once

# How many records each command says that it found in all.
RECORDS = {
    "info": lambda data: data["records"],
    "schema": lambda data: data["records"],
    "verify": lambda data: sum(shard["records"] for shard in data["shards"]),
    "index": lambda data: data["records"],
    "reshard": lambda data: sum(data["records"]),
    "mix": lambda data: data["num_records"],
    "bench": lambda data: 47 if data["stages"][-1]["records_per_second"] > 0 else 0,
}


class TestHelp:
    def test_the_commands_in_the_order_of_use(self, shardmix):
        ran = shardmix("--help")
        assert ran.code == 0
        places = [ran.out.index(f"\n  {name} ") for name in main.COMMANDS]
        assert places == sorted(places)

    @pytest.mark.parametrize("command", main.COMMANDS)
    def test_every_command_shows_examples(self, shardmix, command):
        ran = shardmix(command, "--help")
        assert ran.code == 0
        assert ran.out.count(f"\n  shardmix {command} ") >= 2

    def test_version(self, shardmix):
        assert __version__ in shardmix("--version").out

    def test_starting_imports_neither_torch_nor_numpy_nor_protobuf(self):
        code = (
            "import sys\nfrom shardmix.tools import main\nmain.run(['--help'])\n"
            "print(sorted({'torch', 'numpy', 'google.protobuf', 'tfrecord', 'matplotlib', 'tqdm'} & set(sys.modules)))"
        )
        assert _python(code).splitlines()[-1] == "[]"

    @pytest.mark.parametrize("command", ["info", "head", "schema", "verify", "index", "reshard"])
    def test_commands_that_only_read_and_write_load_no_torch(self, make_corpus, command):
        pattern = make_corpus([3, 2])
        arguments = [command, pattern] + ([pattern.replace("*", "new-{}")] if command == "reshard" else [])
        code = f"import sys\nfrom shardmix.tools import main\nprint(main.run({arguments!r}), 'torch' in sys.modules)"
        assert _python(code).splitlines()[-1] == "0 False"


class TestExitCodes:
    def test_called_wrongly(self, shardmix):
        assert shardmix("nothing").code == 2
        assert shardmix("info").code == 2
        assert shardmix("info", "--no-such-option", "x").code == 2

    def test_no_match_says_what_there_is(self, shardmix, make_corpus):
        ran = shardmix("info", make_corpus([1]).replace("*.tfrecord", "*.tfrec"))
        assert ran.code == 2
        assert "no shard matches" in ran.err
        assert "00000-0.tfrecord" in ran.err

    def test_python_m_and_a_closed_pipe(self, make_corpus):
        pattern = make_corpus([2000])
        command = [sys.executable, "-W", "error", "-m", "shardmix", "head", pattern, "-n", "2000"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
        assert b"record 0" in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait() == 0


class TestMixedFolder:
    """A JPEG, a text file and an unreadable file among the shards: each is named, the rest is done."""

    @pytest.mark.parametrize(
        ("command", "options"),
        [
            ("info", ()),
            ("schema", ()),
            ("head", ("-n", "1000")),
            ("verify", ()),
            ("index", ()),
            ("reshard", ("new-{}",)),
            ("mix", ("--batch-size", "8", "--num-workers", "0")),
            ("bench", ("--num-workers", "0", "--seconds", "0.05")),
        ],
    )
    def test_every_command(self, mixed_folder, run_as_nobody, command, options):
        if command == "reshard":
            options = (mixed_folder / options[0],)
        if command != "head":
            options = (*options, "--json")
        ran = run_as_nobody(command, mixed_folder / "*", *options)
        assert ran.returncode == 1, ran.stderr
        said = ran.stdout + ran.stderr
        for name in ("photo.jpg", "notes.txt", "secret"):
            assert name in said
        if command == "head":
            assert ran.stdout.count(": Example, ") == 47
        else:
            data = json.loads(ran.stdout)
            found = {(os.path.basename(finding["path"]), finding["kind"]) for finding in data["findings"]}
            assert found == {("photo.jpg", "no shard"), ("notes.txt", "no shard"), ("secret", "unreadable")}
            assert RECORDS[command](data) == 47

    def test_an_empty_file_is_a_shard_without_records(self, tmp_path, shardmix):
        (tmp_path / "empty.tfrecord").touch()
        for command in ("info", "schema", "head", "verify", "index"):
            ran = shardmix(command, tmp_path / "empty.tfrecord", "--json")
            assert (ran.code, ran.data["findings"]) == (0, [])


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
class TestInterrupt:
    def test_ctrl_c_leaves_no_half_file(self, tmp_path):
        from shardmix import ShardWriter

        with ShardWriter(tmp_path / "in" / "{}.tfrecord", num_shards=4, compression_type=None) as writer:
            for _ in range(4000):
                writer.write(os.urandom(40_000))
        out = tmp_path / "out"
        command = [sys.executable, "-m", "shardmix", "verify", tmp_path / "in", "--repair", out, "--workers", "2"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT, text=True, start_new_session=True)
        while process.poll() is None and not list(tmp_path.glob("out/.shardmix-*/.*")):
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate()[1]
        assert process.returncode == 130
        assert said.strip() == "shardmix: interrupted; no half file is left"
        assert not out.exists()


def _python(code):
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
