// Valid messages of every kind with bytes flipped, cut, repeated and spliced: decoding refuses or yields a value that
// encodes again. Run under sanitizers by CI.
#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/rpc/codec.h"
#include "tests/unit/rpc/samples.h"

namespace millrace::rpc {
namespace {

using namespace peer;

std::string Mutate(std::string bytes, const std::string& other, Rng& rng) {
  for (uint64_t round = 1 + rng.Below(4); round > 0; --round) {
    const auto at = static_cast<size_t>(rng.Below(bytes.size() + 1));
    switch (rng.Below(6)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(rng.Next32());
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.Below(8)));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(at, bytes.substr(static_cast<size_t>(rng.Below(bytes.size() + 1)), 8));
        break;
      case 4:
        bytes.insert(at, other.substr(static_cast<size_t>(rng.Below(other.size() + 1)), 32));
        break;
      default:
        bytes.insert(at, "\xff\xff\xff\xff\x0f");
    }
  }
  return bytes;
}

template <class Message>
void Fuzz(const std::vector<Message>& samples, uint64_t seed) {
  Rng rng(seed);
  std::vector<std::string> valid;
  for (const Message& sample : samples) valid.push_back(Encode(sample));
  for (int i = 0; i < 4000; ++i) {
    const std::string& base = valid[rng.Below(valid.size())];
    const std::string bytes = Mutate(base, valid[rng.Below(valid.size())], rng);
    const StatusOr<Message> decoded = Decode<Message>(bytes);
    if (!decoded.ok()) {
      ASSERT_EQ(decoded.status().code(), Code::kInvalidArgument);
      continue;
    }
    const std::string again = Encode(*decoded);
    const StatusOr<Message> second = Decode<Message>(again);
    ASSERT_TRUE(second.ok()) << second.status().ToString();
    ASSERT_EQ(Encode(*second), again);
  }
}

TEST(CodecFuzz, ControlMessages) {
  Fuzz<ReportProtocol::Up>({SampleHello(), SampleLoad()}, 1);
  Fuzz<ReportProtocol::Down>({Heartbeat{1, true}}, 2);
  Fuzz<PickProtocol::Up>({SamplePick()}, 3);
  Fuzz<PickProtocol::Down>({Heartbeat{1, true}, Route{"i", 1, "h:1"}}, 4);
  Fuzz<WatchProtocol::Up>({WatchRequest{}}, 5);
  Fuzz<WatchProtocol::Down>({Heartbeat{1, true}, SamplePool()}, 6);
  Fuzz<PrefillProtocol::Up>({PrefillRequest{1, SampleGeneration(), {2}}}, 7);
  Fuzz<PrefillProtocol::Down>({Heartbeat{1, true}, PrefillAccepted{}, DecodeTarget{"h:1", 1, "s"},
                               FirstToken{5, 64, request::FinishReason::kStop}},
                              8);
  Fuzz<DecodeProtocol::Up>({Attach{1, "s", 2}}, 9);
  Fuzz<DecodeProtocol::Down>(
      {Heartbeat{1, true}, TokenChunk{1, {2, 3}}, DecodeFinished{request::FinishReason::kLength}}, 10);
}

TEST(CodecFuzz, KvMessages) {
  Fuzz<HandoffProtocol::Up>({Heartbeat{1, true}, SampleReserve(), SampleBlocks(), HandoffEnd{1, 64}}, 11);
  Fuzz<HandoffProtocol::Down>({Heartbeat{1, true}, Reserved{}, HandoffComplete{}}, 12);
  const std::vector<kv::BlockKey> keys = {SampleKey(1), SampleKey(2)};
  Fuzz<StoreProtocol::Up>({Heartbeat{1, true}, SampleStoreHello(), LookupBlocks{1, keys}, LoadBlocks{2, keys},
                           ReleaseLease{3}, PutBlock{4, keys[0], 5, 6}},
                          13);
  Fuzz<StoreProtocol::Down>({Heartbeat{1, true}, StoreWelcome{1, SampleMemory(), 2}, LookupDone{1, 2},
                             LoadDone{1, 2, {{3, 4}}}, PutDone{1, SampleStatus()}},
                            14);
}

TEST(CodecFuzz, EndingStatuses) {
  Rng rng(15);
  const std::string valid = EncodeStatusDetails(SampleStatus());
  for (int i = 0; i < 20000; ++i) {
    const Status status =
        DecodeStatus(static_cast<int>(rng.Below(20)), Mutate("message", valid, rng), Mutate(valid, valid, rng));
    ASSERT_EQ(status.ToString().empty(), false);
  }
}

}  // namespace
}  // namespace millrace::rpc
