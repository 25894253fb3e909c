"""The cluster's tokens equal those of one process, whatever is batched, cached or streamed beside them."""
import os

import harness

# Characters of text that make prompts of 1 to about 2,000 tokens. MILLRACE_EXACTNESS_PROMPTS asks for more of them.
LENGTHS = [1, 8, 20, 75, 270, 290, 310, 560, 1300, 3000, 5400, 8600]
MORE = int(os.environ.get("MILLRACE_EXACTNESS_PROMPTS", "12")) - len(LENGTHS)
LENGTHS = [round(2 * 4300 ** (i / MORE)) for i in range(MORE)] + LENGTHS
GREEDY = {"temperature": 0}
SAMPLED = {"temperature": 0.8, "top_p": 0.9, "seed": 1234}
NO_READ = {"millrace-cache": "no-read"}


def requests(parameters, headers=None):
    return [harness.Request(harness.text_of(length, 37 * i), 24, headers=headers, **parameters)
            for i, length in enumerate(LENGTHS)]


class ExactnessTest(harness.ClusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.oracles = {name: [harness.generate(r) for r in requests(p)] for name, p in (("greedy", GREEDY), ("sampled", SAMPLED))}
        longest = max(len(o.prompt_ids) for o in cls.oracles["greedy"])
        assert 1500 < longest <= 2100, longest
        assert min(len(o.prompt_ids) for o in cls.oracles["greedy"]) == 1

    def check_alone(self, parameters, oracles, headers=None):
        for request, oracle in zip(requests(parameters, headers), oracles):
            self.assert_same(self.cluster.stream(request), oracle, f"prompt of {len(oracle.prompt_ids)} tokens")

    def check_together(self, parameters, oracles):
        """16 at once: all, and four of them twice."""
        wanted = list(zip(requests(parameters), oracles))
        wanted += wanted[3:7]
        for first in range(0, len(wanted), 16):
            streams = [(harness.Stream(self.cluster, request), oracle) for request, oracle in wanted[first:first + 16]]
            for stream, oracle in streams:
                self.assert_same(stream.result(), oracle, f"prompt of {len(oracle.prompt_ids)} tokens")

    def test_1_alone_without_hits(self):
        self.check_alone(GREEDY, self.oracles["greedy"], NO_READ)
        self.check_alone(SAMPLED, self.oracles["sampled"], NO_READ)

    def test_2_alone_with_hits(self):
        harness.poll(lambda: self.cluster.stream(requests(GREEDY)[-1]).cached > 0, 30, "the store has the longest prompt", 0.2)
        for request, oracle in zip(requests(SAMPLED), self.oracles["sampled"]):
            answer = self.cluster.stream(request)
            self.assert_same(answer, oracle, f"prompt of {len(oracle.prompt_ids)} tokens")
            if len(oracle.prompt_ids) > 128:
                self.assertGreater(answer.cached, 0, len(oracle.prompt_ids))
            self.assertEqual(answer.cached % 64, 0)
            self.assertLess(answer.cached, len(oracle.prompt_ids))

    def test_3_sixteen_at_once(self):
        self.check_together(GREEDY, self.oracles["greedy"])
        self.check_together(SAMPLED, self.oracles["sampled"])

    def test_4_chats_and_ids_as_prompts(self):
        chat = harness.Request([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is rain?"}], 32,
                               temperature=0.5, seed=9)
        self.assert_same(self.cluster.stream(chat), harness.generate(chat))
        ids = harness.Request([5, 17, 300, 4000, 28], 16, ignore_eos=True, **GREEDY)
        self.assert_same(self.cluster.stream(ids), harness.generate(ids))

    def test_5_nothing_is_left(self):
        self.cluster.assert_no_leaks()


if __name__ == "__main__":
    harness.main()
