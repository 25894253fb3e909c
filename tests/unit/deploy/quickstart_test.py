#!/usr/bin/env python3
"""deploy/quickstart.sh over stand-ins: a build that does nothing and a `millrace` that writes down what it was asked."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "deploy" / "quickstart.sh"


class QuickstartTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.state = self.root / "state" / "millrace"
        self.calls = self.root / "calls"
        for name, body in (("deploy/build.sh", ""),
                           ("build/bin/millrace", f'echo "$@" >>{self.calls}\n'
                                                  '[ $1 != up ] || mkdir -p "$XDG_STATE_HOME/millrace/$4"\n'
                                                  '[ $1 != "${FAILS-}" ]')):
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/usr/bin/env bash\n{body}\n")
            path.chmod(0o755)
        shutil.copy(SCRIPT, self.root / "deploy")
        (self.root / "model.gguf").write_text("model")

    def run_script(self, *flags, fails=""):
        env = {**os.environ, "MILLRACE_SKIP_PACKAGES": "1", "XDG_STATE_HOME": str(self.state.parent), "FAILS": fails}
        done = subprocess.run(["../deploy/quickstart.sh", "--model", "../model.gguf", "--once", "hi", *flags], env=env,
                              cwd=self.root / "build", capture_output=True, text=True, timeout=60)
        return done, self.calls.read_text().splitlines() if self.calls.exists() else []

    def test_once_leaves_no_state_however_it_ends(self):
        for fails in ("", "up", "chat"):
            done, calls = self.run_script(fails=fails)
            self.assertEqual(done.returncode, 1 if fails else 0, done.stderr)
            self.assertTrue(calls[0].startswith("up --detach --name once-"), calls)
            self.assertEqual(os.listdir(self.state), [])

    def test_relative_paths_are_of_the_folder_it_is_called_from(self):
        (self.root / "keys").write_text("secret\n")
        done, calls = self.run_script("--api-key-file", "../keys")
        self.assertEqual(done.returncode, 0, done.stderr)
        for file in ("model.gguf", "keys"):
            self.assertIn(str(self.root / "build" / ".." / file), calls[0])
        self.assertIn("--prefill N", self.run_script("--help")[0].stdout)

    def test_keys_for_an_open_host_reach_the_cluster_and_the_chat(self):
        keys = self.root / "keys"
        keys.write_text("# team\nsecret\n")
        done, calls = self.run_script("--host", "0.0.0.0", "--api-key-file", str(keys))
        self.assertEqual(done.returncode, 0, done.stderr)
        for call in (calls[0], calls[1]):
            self.assertIn(f"--api-key-file {keys}", call)
        self.assertIn("--host 0.0.0.0", calls[0])

    def test_a_key_file_without_keys_is_said_before_anything_starts(self):
        done, calls = self.run_script("--api-key-file", os.devnull)
        self.assertEqual((done.returncode, calls), (1, []))
        self.assertIn("no API key in", done.stderr)

    def test_anonymous_use_of_an_open_host_can_be_asked_for(self):
        _, calls = self.run_script("--host", "0.0.0.0", "--allow-anonymous")
        self.assertIn("--allow-anonymous", calls[0])


if __name__ == "__main__":
    unittest.main()
