"""kill -9 of one process of each role in the middle of 20 streams."""
import signal

import faults
import harness


class KillTest(faults.FaultTest):
    def check(self, role):
        victim = self.cluster.processes(role)[0]
        before = self.reentries()
        self.under_streams(lambda: self.cluster.signal(victim["name"], signal.SIGKILL))
        if role == "decode":
            self.assertGreater(self.reentries(), before, "streams were in the middle")

        def rejoined():
            now = self.cluster.process(victim["name"])
            return now["ready"] and now["incarnation"] != victim["incarnation"] and now["ports"]["grpc"] == victim["ports"]["grpc"]
        harness.poll(rejoined, 30, f"{victim['name']} is back under a new incarnation", 0.2)
        self.cluster.wait_ready()
        self.cluster.assert_no_leaks()

    def test_prefill(self):
        self.check("prefill")

    def test_decode(self):
        self.check("decode")

    def test_prefill_balancer(self):
        self.check("prefill-balancer")

    def test_decode_balancer(self):
        self.check("decode-balancer")

    def test_store(self):
        self.check("store")


class NobodyLeftTest(harness.ClusterTest):
    """When no replica of a role is left the client is told so, soon."""
    counts = {"prefill": 1, "decode": 1, "balancers": 1, "store": 0}

    def test_an_error_comes_when_no_decode_worker_is_left(self):
        stream = harness.Stream(self.cluster, harness.Request(harness.text_of(200), 400, ignore_eos=True, temperature=0))
        harness.poll(lambda: stream.answer.times, 60, "the stream has begun", 0.01)
        # A worker that comes back would save it: the supervisor itself must not bring one.
        import os
        os.kill(self.cluster.status()["supervisor"]["pid"], signal.SIGSTOP)
        try:
            self.cluster.signal("decode-0", signal.SIGKILL)
            stream.join(20)
            self.assertFalse(stream.is_alive(), "the stream hangs")
            self.assertIsInstance(stream.error, harness.Failed)
            self.assertEqual(stream.error.status, 200, "an error event within the stream")
            self.assertIn("message", stream.error.body)
            with self.assertRaises(harness.Failed) as late:
                self.cluster.ask(harness.Request("Hello", 4))
            self.assertIn(late.exception.status, (429, 503))
        finally:
            os.kill(self.cluster.status()["supervisor"]["pid"], signal.SIGCONT)
        self.cluster.wait_ready()
        self.cluster.ask(harness.Request("Hello", 4))


if __name__ == "__main__":
    harness.main()
