"""A prompt that shares a prefix is not computed twice, also after the store was killed."""
import signal

import harness

NO_STORE = {"millrace-cache": "no-store"}
NO_READ = {"millrace-cache": "no-read"}


class PrefixTest(harness.ClusterTest):
    def computed(self):
        return self.cluster.metric("prefill", "millrace_prefill_computed_tokens_total")

    def wait_stored(self, request):
        return harness.poll(lambda: (a := self.cluster.stream(request)).cached > 0 and a, 20, "a stored prefix is found", 0.2)

    def test_the_second_request_computes_only_the_rest(self):
        prefix = harness.text_of(3000, 11)
        first = self.cluster.stream(harness.Request(prefix + " One", 4, temperature=0))
        self.assertEqual(first.cached, 0)
        self.wait_stored(harness.Request(prefix + " Two", 4, temperature=0))
        before = self.computed()
        request = harness.Request(prefix + " Three", 4, temperature=0)
        answer = self.cluster.stream(request)
        prompt = len(answer.prompt_ids)
        self.assertGreaterEqual(answer.cached, prompt - 128)
        self.assertEqual(self.computed() - before, prompt - answer.cached)
        self.assert_same(answer, harness.generate(request))

    def test_the_store_remembers_after_kill(self):
        request = harness.Request(harness.text_of(2500, 4000), 8, temperature=0)
        oracle = self.cluster.stream(request)
        self.wait_stored(request)
        old = self.cluster.process("store-0")
        self.cluster.signal("store-0", signal.SIGKILL)
        harness.poll(lambda: self.cluster.process("store-0")["ready"] and
                     self.cluster.process("store-0")["incarnation"] != old["incarnation"], 30, "the store is back", 0.2)
        answer = self.wait_stored(request)
        self.assertGreater(answer.cached, 256)
        self.assertEqual(answer.ids, oracle.ids)

    def test_headers_bypass_the_store(self):
        text = harness.text_of(2000, 7000)
        for _ in range(3):
            self.assertEqual(self.cluster.stream(harness.Request(text, 4, headers=NO_STORE, temperature=0)).cached, 0)
        request = harness.Request(text, 4, temperature=0)
        self.assertEqual(self.cluster.stream(request).cached, 0, "no-store put nothing")
        self.wait_stored(request)
        self.assertEqual(self.cluster.stream(harness.Request(text, 4, headers=NO_READ, temperature=0)).cached, 0)

    def test_without_a_store_everything_works(self):
        request = harness.Request(harness.text_of(900, 100), 8, temperature=0)
        oracle = harness.generate(request)
        cluster = harness.Cluster(prefill=1, decode=1, balancers=1, store=0)
        try:
            for _ in range(2):
                answer = cluster.stream(request)
                self.assert_same(answer, oracle)
                self.assertEqual(answer.cached, 0)
        finally:
            cluster.close()


if __name__ == "__main__":
    harness.main()
