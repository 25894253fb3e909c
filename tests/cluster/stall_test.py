"""SIGSTOP of one process of each role in the middle of 20 streams is its death; SIGCONT later harms nothing."""
import signal

import faults
import harness


class StallTest(faults.FaultTest):
    def check(self, role):
        victim = self.cluster.processes(role)[0]
        before = self.reentries()
        try:
            self.under_streams(lambda: self.cluster.signal(victim["name"], signal.SIGSTOP))
            if role == "decode":
                self.assertGreater(self.reentries(), before, "streams were in the middle")
        finally:
            self.cluster.signal(victim["name"], signal.SIGCONT)
        self.cluster.wait_ready()
        now = self.cluster.process(victim["name"])
        self.assertEqual((now["pid"], now["incarnation"]), (victim["pid"], victim["incarnation"]), "it was not restarted")
        # What it still does for the requests it lost must disturb nobody.
        self.under_streams(lambda: None)
        self.cluster.assert_no_leaks(40)

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


if __name__ == "__main__":
    harness.main()
