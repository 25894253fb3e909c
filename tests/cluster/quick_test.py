"""The first minute of a user: an answer, the listing of processes, the tools, an end without leftovers."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import harness


class QuickTest(harness.ClusterTest):
    def test_answers_a_chat(self):
        answer = self.cluster.stream(harness.Request([{"role": "user", "content": "Name the largest ocean."}], 128, temperature=0))
        self.assertIn("Pacific Ocean", answer.text)
        self.assertEqual(answer.finish, "stop")
        self.assertGreater(len(answer.times), 3, "it streams")

    def test_streamed_and_whole_answers_are_the_same(self):
        request = harness.Request(harness.text_of(300), temperature=0.9, seed=5)
        self.assertEqual(self.cluster.ask(request).ids, self.cluster.stream(request).ids)

    def test_status_lists_every_process(self):
        processes = self.cluster.processes()
        self.assertEqual(len(processes), 10)
        self.assertEqual(len({p["pid"] for p in processes}), 10)
        self.assertEqual(len({p["incarnation"] for p in processes}), 10)
        for process in processes:
            self.assertTrue(process["ready"], process)
            self.assertGreater(process["ports"]["admin"], 0)
            self.assertEqual(process["restarts"], 0)
            for page in ("/healthz", "/readyz", "/metrics", "/statusz"):
                self.assertEqual(self.cluster.get_status(page, process["ports"]["admin"]), 200, f"{process['name']} {page}")

    def test_status_fits_a_terminal(self):
        table = self.cluster.run("status", "--name", "test").stdout
        self.assertEqual(len(table.splitlines()), 13)
        self.assertLessEqual(max(len(line) for line in table.splitlines()[2:]), 170, table)
        self.assertIn("free_blocks=", table)

    def test_chat_and_bench_refuse_a_name_that_no_cluster_has(self):
        for words in (("chat", "--once", "hi"), ("bench", "serve")):
            done = self.cluster.run(*words, "--name", "typo")
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("no cluster named 'typo' is running", done.stderr)
            self.assertIn("--url", done.stderr)

    def test_chat_talks_to_the_cluster(self):
        done = self.cluster.run("chat", "--name", "test", "--temperature", "0", "--max-tokens", "16", "--once", "Say hello.")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.strip())

    def test_bench_serve_measures(self):
        done = self.cluster.run("bench", "serve", "--name", "test", "--requests", "6", "--concurrency", "3",
                                "--prompt-tokens", "100", "--output-tokens", "4", "--prefix-share", "0.7", "--json", timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["succeeded"], 6)
        self.assertEqual(report["output_tokens"], 24)
        self.assertEqual(report["prompt_tokens"], 600)
        self.assertGreater(report["ttft_s"]["p50"], 0)

    def test_the_official_client_streams_from_it(self):
        done = subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "openai_client_test.py")],
                              env={**os.environ, "MILLRACE_API_URL": self.cluster.endpoint}, capture_output=True, text=True, timeout=200)
        if done.returncode == 77:
            self.skipTest("the openai package is not installed")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_logs_are_there(self):
        done = self.cluster.run("logs", "gateway", "--name", "test")
        self.assertEqual(done.returncode, 0)
        self.assertIn("gateway-0", done.stdout)

    def test_a_second_cluster_of_the_name_is_refused(self):
        done = self.cluster.run("up", "--name", "test", "--port", "0", "--model", harness.MODEL)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is running", done.stderr)


class AnotherHostTest(harness.ClusterTest):
    flags = ("--host", "127.0.0.2")
    counts = {"prefill": 1, "decode": 1, "balancers": 1}

    def test_an_api_on_another_address_gets_ready_and_answers(self):
        self.assertTrue(self.cluster.endpoint.startswith("http://127.0.0.2:"), self.cluster.endpoint)
        self.assertTrue(self.cluster.ask(harness.Request("Hello", 4)).ids)
        self.assertEqual(self.cluster.get_status("/readyz", self.cluster.process("gateway-0")["ports"]["admin"]), 200)


class StartTest(unittest.TestCase):
    """What is wrong before anything starts is said so, and nothing is left."""

    def setUp(self):
        self.home = harness.StateHome()
        self.addCleanup(self.home.close)

    def up(self, *words, timeout=60):
        return subprocess.run([harness.MILLRACE, "up", *words], env=self.home.env, capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL)

    def test_missing_model(self):
        done = self.up("--model", "/nowhere/model.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/model.gguf", done.stderr)
        self.assertEqual(os.listdir(self.home.root), [])

    def test_broken_models(self):
        with open(harness.MODEL, "rb") as file:
            whole = file.read(2_000_000)
        for content in (b"", b"no gguf at all" * 100, whole):
            with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
                file.write(content)
                file.flush()
                done = self.up("--model", file.name)
                self.assertEqual(done.returncode, 1)
                self.assertIn(file.name, done.stderr)

    def test_a_context_that_kv_memory_cannot_hold(self):
        done = self.up("--model", harness.MODEL, "--port", "0", "--context", "448", "--kv-memory", "1M")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--kv-memory", done.stderr)

    def test_port_in_use(self):
        import socket
        with socket.create_server(("127.0.0.1", 0)) as taken:
            done = self.up("--model", harness.MODEL, "--port", str(taken.getsockname()[1]))
        self.assertEqual(done.returncode, 1)
        self.assertIn("in use", done.stderr)

    def test_wrong_flags(self):
        for flag, value in (("--prefill", "0"), ("--kv-memory", "12parsecs"), ("--policy", "nosuch"), ("--context", "10000000"),
                            ("--host", "0.0.0.0"), ("--name", "..")):
            done = self.up("--model", harness.MODEL, flag, value)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(flag, done.stderr)
            self.assertEqual(done.stdout, "", "nothing was started")
        self.assertEqual(os.listdir(self.home.root), [])

    def test_ctrl_c_stops_every_process(self):
        up = subprocess.Popen([harness.MILLRACE, "up", "--model", harness.MODEL, "--port", "0", "--prefill", "1", "--decode", "1",
                               "--balancers", "1"], env=self.home.env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
        for line in up.stdout:
            if line.startswith("ready:"):
                break
        with open(f"{self.home.root}/millrace/default/state.json") as file:
            state = json.load(file)
        pids = [p["process"]["pid"] for p in state["processes"]]
        self.assertEqual(len(pids), 6)
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=60)
        self.assertEqual(up.returncode, 0)
        self.assertEqual([pid for pid in pids if os.path.exists(f"/proc/{pid}")], [])

    def test_children_die_with_a_killed_supervisor_and_the_next_run_starts(self):
        cluster = harness.Cluster(prefill=1, decode=1, balancers=1, store=0)
        try:
            pids = [p["pid"] for p in cluster.processes()]
            os.kill(cluster.status()["supervisor"]["pid"], signal.SIGKILL)
            gone = lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids)
            harness.poll(gone, 10, "children of a killed supervisor end")
            done = cluster.run("up", "--name", "test", "--port", "0", "--model", harness.MODEL, "--prefill", "1", "--decode", "1",
                               "--balancers", "1", "--store", "0", "--detach", timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
        finally:
            cluster.close()

    def test_a_killed_test_leaves_no_cluster_and_no_folder(self):
        script = ("import harness; c = harness.Cluster(prefill=1, decode=1, balancers=1, store=0); "
                  "print(c.root, c.status()['supervisor']['pid'], *[p['pid'] for p in c.processes()], flush=True); input()")
        test = subprocess.Popen([sys.executable, "-c", script], cwd=os.path.dirname(os.path.abspath(__file__)), text=True,
                                env={**os.environ, "MILLRACE_BUILD_DIR": str(harness.BUILD.resolve())},
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with test:
            root, *pids = test.stdout.readline().split()
            self.assertEqual(len(pids), 6)
            test.kill()
        harness.poll(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids), 10, "the cluster is gone")
        harness.poll(lambda: not os.path.exists(root), 10, "its folder is gone")


if __name__ == "__main__":
    harness.main()
