"""On a machine that has far too much to do nobody is declared dead by mistake."""
import os
import subprocess
import sys

import harness

BUSY = 3 * (os.cpu_count() or 1)


class StressTest(harness.ClusterTest):
    def test_long_prompts_on_an_oversubscribed_machine(self):
        requests = [harness.Request(harness.text_of(4000, 901 * i), 12, ignore_eos=True, temperature=0) for i in range(20)]
        oracles = {i: harness.generate(requests[i]) for i in (0, 7, 19)}
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
        try:
            streams = [harness.Stream(self.cluster, request) for request in requests]
            answers = [stream.result(400) for stream in streams]
        finally:
            for process in busy:
                process.kill()
                process.wait()
        for i, oracle in oracles.items():
            self.assert_same(answers[i], oracle, f"stream {i}")
        self.assertEqual([len(answer.ids) for answer in answers], [12] * 20)
        deaths = sum(self.cluster.metric(role, "millrace_balancer_deaths_total") for role in ("prefill-balancer", "decode-balancer"))
        self.assertEqual(deaths, 0)
        self.assertEqual(self.cluster.metric("gateway", "millrace_gateway_reentries_total"), 0)
        self.assertTrue(all(p["restarts"] == 0 for p in self.cluster.processes()))
        self.cluster.assert_no_leaks()


if __name__ == "__main__":
    harness.main()
