#!/usr/bin/env python3
"""deploy/install-packages.sh with stand-ins for dpkg, apt, id and sudo that write down what they were asked."""
import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "deploy" / "install-packages.sh"


class InstallPackagesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "bin").mkdir()
        for tool in ("bash", "cat", "env", "mktemp", "rm", "tail", "dirname", "printf"):
            (self.root / "bin" / tool).symlink_to(subprocess.check_output(["which", tool], text=True).strip())

    def fake(self, name, body):
        path = self.root / "bin" / name
        path.write_text(f"#!{self.root}/bin/bash\n{body}\n")
        path.chmod(0o755)

    def run_script(self, packages, installed=(), available=(), uid=0, sudo=False, apt_status=0):
        listing = self.root / "list"
        listing.write_text(packages)
        calls = self.root / "calls"
        calls.write_text("")
        self.fake("id", f"echo {uid}")
        self.fake("dpkg-query", 'case " ' + " ".join(installed) + ' " in *" ${@: -1} "*) echo -n installed ;; *) exit 1 ;; esac')
        self.fake("apt-cache", 'case " ' + " ".join(available) + ' " in *" $2 "*) echo "$2 | 1.0 | there" ;; esac')
        self.fake("apt-get", f'echo "$@" >>{calls}; echo "apt speaks"; exit {apt_status}')
        if sudo:
            self.fake("sudo", f'echo "sudo $1" >>{calls}; exec "$@"')
        done = subprocess.run([self.root / "bin" / "bash", SCRIPT, listing], env={"PATH": str(self.root / "bin")},
                              capture_output=True, text=True)
        return done, calls.read_text()

    def test_asks_nothing_of_apt_when_all_is_there(self):
        done, calls = self.run_script("# a comment\na\nb | c  # one of them\n", installed=("a", "c"), uid=1000)
        self.assertEqual((done.returncode, calls), (0, ""), done.stderr)

    def test_takes_the_first_alternative_that_the_release_has(self):
        done, calls = self.run_script("a\nnew | old\n", installed=("a",), available=("old",))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("install -y --no-install-recommends old\n", calls)

    def test_uses_sudo_only_when_not_root(self):
        self.assertNotIn("sudo", self.run_script("a\n", available=("a",), uid=0, sudo=True)[1])
        self.assertIn("sudo", self.run_script("a\n", available=("a",), uid=1000, sudo=True)[1])

    def test_neither_root_nor_sudo_gets_the_list(self):
        done, calls = self.run_script("a\nb\nc | d\n", installed=("b",), uid=1000)
        self.assertEqual((done.returncode, calls), (1, ""))
        self.assertIn("apt-get install -y a c\n", done.stderr)

    def test_a_package_that_the_release_lacks_is_named(self):
        done, _ = self.run_script("x | y\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no package x or y", done.stderr)

    def test_shows_what_apt_said_when_it_fails(self):
        done, _ = self.run_script("a\n", available=("a",), apt_status=100)
        self.assertEqual(done.returncode, 1)
        self.assertIn("apt speaks", done.stderr)


if __name__ == "__main__":
    unittest.main()
