"""What the kill and the stall test have in common: 20 streams whose right answers are known."""
import harness

STREAMS = 20
TOKENS = 48


def requests():
    """Half greedy, half sampled, of different lengths; none ends early."""
    out = []
    for i in range(STREAMS):
        parameters = {"temperature": 0} if i % 2 == 0 else {"temperature": 0.9, "seed": 100 + i}
        out.append(harness.Request(harness.text_of(60 + 40 * i, 211 * i), TOKENS, ignore_eos=True, **parameters))
    return out


class FaultTest(harness.ClusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.oracles = [harness.generate(r) for r in requests()]

    def reentries(self):
        return self.cluster.metric("gateway", "millrace_gateway_reentries_total")

    def under_streams(self, fault):
        """Runs `fault` when half of the streams have begun to answer and none could be over; every stream must be exact."""
        streams = [harness.Stream(self.cluster, request) for request in requests()]
        harness.poll(lambda: sum(bool(s.answer.times) for s in streams) >= STREAMS // 2, 120, "half of the streams answer", 0.01)
        fault()
        for i, (stream, oracle) in enumerate(zip(streams, self.oracles)):
            try:
                self.assert_same(stream.result(), oracle, f"stream {i}")
            except harness.Failed as error:
                self.fail(f"stream {i} failed after {len(stream.answer.ids)} tokens: {error}")
