#include "common/rpc/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/unit/rpc/samples.h"

namespace millrace::rpc {
namespace {

using namespace peer;
using ::testing::HasSubstr;

// What `value` is after its trip as a `Message`.
template <class Message, class T>
T Trip(const T& value) {
  const std::string bytes = Encode(Message(value));
  StatusOr<Message> decoded = Decode<Message>(bytes);
  EXPECT_TRUE(decoded.ok()) << decoded.status().ToString();
  if (!decoded.ok()) return {};
  EXPECT_TRUE(std::holds_alternative<T>(*decoded));
  EXPECT_EQ(Encode(*decoded), bytes);
  return std::get<T>(*decoded);
}

template <class Message>
std::string Refusal(const Message& message) {
  const StatusOr<Message> decoded = Decode<Message>(Encode(message));
  EXPECT_EQ(decoded.status().code(), Code::kInvalidArgument);
  return decoded.status().message();
}

void ExpectSame(const MemoryAddress& out, const MemoryAddress& in) {
  EXPECT_EQ(out.transport_address, in.transport_address);
  EXPECT_EQ(out.region_descriptor, in.region_descriptor);
}

template <class Message>
void ExpectHeartbeatTrips() {
  const auto out = Trip<Message>(Heartbeat{.progress = 1ull << 63, .busy = true});
  EXPECT_EQ(out.progress, 1ull << 63);
  EXPECT_TRUE(out.busy);
}

TEST(Codec, HeartbeatsOfEveryProtocol) {
  ExpectHeartbeatTrips<ReportProtocol::Down>();
  ExpectHeartbeatTrips<PickProtocol::Down>();
  ExpectHeartbeatTrips<WatchProtocol::Down>();
  ExpectHeartbeatTrips<PrefillProtocol::Down>();
  ExpectHeartbeatTrips<HandoffProtocol::Up>();
  ExpectHeartbeatTrips<HandoffProtocol::Down>();
  ExpectHeartbeatTrips<DecodeProtocol::Down>();
  ExpectHeartbeatTrips<StoreProtocol::Up>();
  ExpectHeartbeatTrips<StoreProtocol::Down>();
}

TEST(Codec, Report) {
  EXPECT_EQ(Trip<ReportProtocol::Up>(SampleHello()).info, SampleHello().info);
  EXPECT_EQ(Trip<ReportProtocol::Up>(SampleLoad()).load, SampleLoad().load);
  using cluster::Role;
  for (const Role role :
       {Role::kGateway, Role::kPrefill, Role::kDecode, Role::kStore, Role::kPrefillBalancer, Role::kDecodeBalancer}) {
    WorkerHello hello = SampleHello();
    hello.info.role = role;
    EXPECT_EQ(Trip<ReportProtocol::Up>(hello).info.role, role);
  }
}

TEST(Codec, Pick) {
  const PickRequest in = SamplePick();
  const auto out = Trip<PickProtocol::Up>(in);
  EXPECT_EQ(out.request_id, in.request_id);
  EXPECT_EQ(out.model, in.model);
  EXPECT_EQ(out.layout_digest, in.layout_digest);
  EXPECT_EQ(out.prompt_tokens, in.prompt_tokens);
  EXPECT_EQ(out.max_new_tokens, in.max_new_tokens);
  EXPECT_EQ(out.model_digest, in.model_digest);
  EXPECT_EQ(out.excluded, in.excluded);
  const auto route = Trip<PickProtocol::Down>(Route{.instance_id = "i", .incarnation = 7, .address = "h:1"});
  EXPECT_EQ(route.instance_id, "i");
  EXPECT_EQ(route.incarnation, 7u);
  EXPECT_EQ(route.address, "h:1");
}

TEST(Codec, Watch) {
  Trip<WatchProtocol::Up>(WatchRequest{});
  const PoolState in = SamplePool();
  const auto out = Trip<WatchProtocol::Down>(in);
  ASSERT_EQ(out.models.size(), 2u);
  EXPECT_EQ(out.models[0].model, in.models[0].model);
  EXPECT_EQ(out.models[0].ready_instances, 3u);
  EXPECT_EQ(out.live, in.live);
}

TEST(Codec, Prefill) {
  const PrefillRequest in{.incarnation = 5, .generation = SampleGeneration(), .excluded_decode = {1, 2}};
  const auto out = Trip<PrefillProtocol::Up>(in);
  EXPECT_EQ(out.incarnation, 5u);
  EXPECT_EQ(out.generation, in.generation);
  EXPECT_EQ(out.excluded_decode, in.excluded_decode);
  Trip<PrefillProtocol::Down>(PrefillAccepted{});
  const auto target = Trip<PrefillProtocol::Down>(DecodeTarget{.address = "a:1", .incarnation = 2, .session = "s"});
  EXPECT_EQ(target.address, "a:1");
  EXPECT_EQ(target.incarnation, 2u);
  EXPECT_EQ(target.session, "s");
  const auto first = Trip<PrefillProtocol::Down>(
      FirstToken{.token = 3, .cached_tokens = 64, .finish = request::FinishReason::kLength});
  EXPECT_EQ(first.token, 3);
  EXPECT_EQ(first.cached_tokens, 64u);
  EXPECT_EQ(first.finish, request::FinishReason::kLength);
}

TEST(Codec, Handoff) {
  const Reserve in = SampleReserve();
  const auto out = Trip<HandoffProtocol::Up>(in);
  EXPECT_EQ(out.incarnation, in.incarnation);
  EXPECT_EQ(out.session, in.session);
  EXPECT_EQ(out.generation, in.generation);
  EXPECT_EQ(out.layout_digest, in.layout_digest);
  ExpectSame(out.source, in.source);
  EXPECT_EQ(out.source_incarnation, in.source_incarnation);
  const auto blocks = Trip<HandoffProtocol::Up>(SampleBlocks());
  ASSERT_EQ(blocks.blocks.size(), 2u);
  EXPECT_EQ(blocks.blocks[0].layer, 1u);
  EXPECT_EQ(blocks.blocks[0].block, 2u);
  EXPECT_EQ(blocks.blocks[0].offset, 0x123456789abcu);
  EXPECT_EQ(blocks.blocks[0].length, 4u);
  EXPECT_EQ(blocks.blocks[0].crc32c, 0xdeadbeefu);
  const auto end = Trip<HandoffProtocol::Up>(HandoffEnd{.first_token = 11, .cached_tokens = 128});
  EXPECT_EQ(end.first_token, 11);
  EXPECT_EQ(end.cached_tokens, 128u);
  Trip<HandoffProtocol::Down>(Reserved{});
  Trip<HandoffProtocol::Down>(HandoffComplete{});
}

TEST(Codec, Decode) {
  const auto attach = Trip<DecodeProtocol::Up>(Attach{.incarnation = 1, .session = "s", .from = 3});
  EXPECT_EQ(attach.incarnation, 1u);
  EXPECT_EQ(attach.session, "s");
  EXPECT_EQ(attach.from, 3u);
  const auto chunk = Trip<DecodeProtocol::Down>(TokenChunk{.first_index = 4, .tokens = {0, 5, 6}});
  EXPECT_EQ(chunk.first_index, 4u);
  EXPECT_EQ(chunk.tokens, (std::vector<request::TokenId>{0, 5, 6}));
  for (const auto reason :
       {request::FinishReason::kNone, request::FinishReason::kStop, request::FinishReason::kLength}) {
    EXPECT_EQ(Trip<DecodeProtocol::Down>(DecodeFinished{reason}).finish, reason);
  }
}

TEST(Codec, Store) {
  const StoreHello in = SampleStoreHello();
  const auto hello = Trip<StoreProtocol::Up>(in);
  EXPECT_EQ(hello.layout_digest, in.layout_digest);
  EXPECT_EQ(hello.block_bytes, in.block_bytes);
  ExpectSame(hello.memory, in.memory);
  EXPECT_EQ(hello.incarnation, in.incarnation);
  const auto welcome =
      Trip<StoreProtocol::Down>(StoreWelcome{.incarnation = 1, .memory = SampleMemory(), .max_load_blocks = 32});
  EXPECT_EQ(welcome.incarnation, 1u);
  ExpectSame(welcome.memory, SampleMemory());
  EXPECT_EQ(welcome.max_load_blocks, 32u);
  const std::vector<kv::BlockKey> keys = {SampleKey(0), SampleKey(250)};
  const auto lookup = Trip<StoreProtocol::Up>(LookupBlocks{.tag = 1, .keys = keys});
  EXPECT_EQ(lookup.tag, 1u);
  EXPECT_EQ(lookup.keys, keys);
  const auto load = Trip<StoreProtocol::Up>(LoadBlocks{.tag = 2, .keys = keys});
  EXPECT_EQ(load.tag, 2u);
  EXPECT_EQ(load.keys, keys);
  EXPECT_EQ(Trip<StoreProtocol::Up>(ReleaseLease{.lease = 3}).lease, 3u);
  const auto put = Trip<StoreProtocol::Up>(PutBlock{.tag = 4, .key = keys[1], .offset = 5, .crc32c = 6});
  EXPECT_EQ(put.tag, 4u);
  EXPECT_EQ(put.key, keys[1]);
  EXPECT_EQ(put.offset, 5u);
  EXPECT_EQ(put.crc32c, 6u);
  const auto looked = Trip<StoreProtocol::Down>(LookupDone{.tag = 7, .present = 8});
  EXPECT_EQ(looked.tag, 7u);
  EXPECT_EQ(looked.present, 8u);
  const auto loaded =
      Trip<StoreProtocol::Down>(LoadDone{.tag = 9, .lease = 10, .blocks = {{.offset = 11, .crc32c = 12}}});
  EXPECT_EQ(loaded.tag, 9u);
  EXPECT_EQ(loaded.lease, 10u);
  ASSERT_EQ(loaded.blocks.size(), 1u);
  EXPECT_EQ(loaded.blocks[0].offset, 11u);
  EXPECT_EQ(loaded.blocks[0].crc32c, 12u);
}

void ExpectSame(const Status& out, const Status& in) {
  EXPECT_EQ(out.code(), in.code());
  EXPECT_EQ(out.reason(), in.reason());
  EXPECT_EQ(out.message(), in.message());
  EXPECT_EQ(out.param(), in.param());
  EXPECT_EQ(out.retry_after_ms(), in.retry_after_ms());
}

TEST(Codec, PutDoneCarriesTheWholeStatus) {
  const auto done = Trip<StoreProtocol::Down>(PutDone{.tag = 1, .status = SampleStatus()});
  EXPECT_EQ(done.tag, 1u);
  ExpectSame(done.status, SampleStatus());
  EXPECT_TRUE(Trip<StoreProtocol::Down>(PutDone{.tag = 1, .status = OkStatus()}).status.ok());
}

TEST(Codec, EndingStatusOfEveryReason) {
  for (int reason = 0; reason <= static_cast<int>(Reason::kNoSpace); ++reason) {
    const Status in(Code::kUnavailable, static_cast<Reason>(reason), "m");
    ExpectSame(DecodeStatus(14, WireMessage(in), EncodeStatusDetails(in)), in);
  }
  ExpectSame(DecodeStatus(8, WireMessage(SampleStatus()), EncodeStatusDetails(SampleStatus())), SampleStatus());
  EXPECT_TRUE(DecodeStatus(0, "", "").ok());
  EXPECT_EQ(EncodeStatusDetails(OkStatus()), "");
}

TEST(Codec, StrangeEndingStatusIsStillAStatus) {
  EXPECT_EQ(DecodeStatus(99, "m", "").code(), Code::kUnknown);
  EXPECT_EQ(DecodeStatus(-1, "m", "rubbish").code(), Code::kUnknown);
  EXPECT_EQ(DecodeStatus(14, "m", "rubbish").reason(), Reason::kNone);
  // Reason 77 inside otherwise good details.
  std::string details = EncodeStatusDetails(Status(Code::kUnavailable, Reason::kOverloaded, ""));
  const size_t at = details.rfind("\x08\x01");
  ASSERT_NE(at, std::string::npos);
  details[at + 1] = 77;
  EXPECT_EQ(DecodeStatus(14, "m", details).reason(), Reason::kNone);
}

TEST(Codec, TextThatTravelsInAStatusIsValidUtf8) {
  EXPECT_EQ(WireMessage(Internal("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80")), "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  // A lone byte, a cut sequence, a surrogate, an overlong form, beyond U+10FFFF, cut by the end.
  EXPECT_EQ(WireMessage(Internal("\xff\xc3(\xed\xa0\x80\xc0\x80\xf5\x80\x80\x80\xe2\x82")),
            "?"
            "?(" +
                std::string(11, '?'));
  const std::string cut = WireMessage(Internal(std::string(1023, 'x') + "\xc3\xa9"));
  EXPECT_EQ(cut, std::string(1023, 'x'));
}

TEST(CodecRefuses, BytesThatAreNoMessage) {
  EXPECT_THAT(Decode<PickProtocol::Up>("").status().message(), HasSubstr("not set"));
  EXPECT_THAT(Decode<PickProtocol::Up>("\xff\xff\xff").status().message(), HasSubstr("does not parse"));
  EXPECT_THAT(Decode<PickProtocol::Up>("\x7a\x00").status().message(), HasSubstr("millrace.v1.PickUp"));
}

TEST(CodecRefuses, UnknownEnums) {
  WorkerHello hello = SampleHello();
  hello.info.role = static_cast<cluster::Role>(200);
  EXPECT_THAT(Refusal(ReportProtocol::Up(hello)), HasSubstr("role"));
  // DecodeFinished{finish: 9}
  EXPECT_THAT(Decode<DecodeProtocol::Down>(std::string("\x1a\x02\x08\x09", 4)).status().message(), HasSubstr("finish"));
  // PutDone{outcome{code: 99}}
  EXPECT_THAT(Decode<StoreProtocol::Down>(std::string("\x2a\x04\x12\x02\x08\x63", 6)).status().message(),
              HasSubstr("outcome.code"));
}

TEST(CodecRefuses, GenerationsThatBreakTheirRules) {
  const auto refusal = [](const std::function<void(request::Generation&)>& change) {
    PrefillRequest request{.generation = SampleGeneration()};
    change(request.generation);
    return Refusal(PrefillProtocol::Up(request));
  };
  EXPECT_THAT(refusal([](auto& g) { g.tokens.clear(); }), HasSubstr("prompt_tokens"));
  EXPECT_THAT(refusal([](auto& g) { g.prompt_tokens = 0; }), HasSubstr("prompt_tokens"));
  EXPECT_THAT(refusal([](auto& g) { g.prompt_tokens = 5; }), HasSubstr("prompt_tokens"));
  EXPECT_THAT(refusal([](auto& g) { g.max_new_tokens = 0; }), HasSubstr("max_new_tokens"));
  EXPECT_THAT(refusal([](auto& g) { g.tokens[1] = -1; }), HasSubstr("negative"));
  EXPECT_THAT(refusal([](auto& g) { g.tokens.resize(kMaxTokens + 1); }), HasSubstr("token_ids"));
  EXPECT_THAT(refusal([](auto& g) { g.stop_ids.resize(kMaxStopIds + 1); }), HasSubstr("stop_token_ids"));
  EXPECT_THAT(refusal([](auto& g) { g.tenant_salt.resize(kMaxTextBytes + 1); }), HasSubstr("tenant_salt"));
  EXPECT_THAT(refusal([](auto& g) { g.request_id.resize(kMaxTextBytes + 1); }), HasSubstr("request_id"));
  EXPECT_THAT(refusal([](auto& g) { g.sampling.temperature = std::numeric_limits<float>::quiet_NaN(); }),
              HasSubstr("not finite"));
  EXPECT_THAT(refusal([](auto& g) { g.sampling.logit_bias = {{1, std::numeric_limits<float>::infinity()}}; }),
              HasSubstr("logit_bias"));
  EXPECT_THAT(refusal([](auto& g) { g.sampling.logit_bias = {{3, 1.0f}, {3, 1.0f}}; }), HasSubstr("ascending"));
  EXPECT_THAT(refusal([](auto& g) { g.sampling.logit_bias = {{-1, 1.0f}}; }), HasSubstr("ascending"));
}

TEST(CodecRefuses, WhatIsTooLong) {
  PickRequest pick = SamplePick();
  pick.excluded.resize(kMaxIncarnations + 1);
  EXPECT_THAT(Refusal(PickProtocol::Up(pick)), HasSubstr("excluded"));
  PoolState pool;
  pool.models.resize(kMaxModels + 1);
  EXPECT_THAT(Refusal(WatchProtocol::Down(pool)), HasSubstr("models"));
  StoreHello hello = SampleStoreHello();
  hello.memory.region_descriptor.resize(kMaxDescriptorBytes + 1);
  EXPECT_THAT(Refusal(StoreProtocol::Up(hello)), HasSubstr("region_descriptor"));
  LookupBlocks lookup;
  lookup.keys.resize(kMaxBlockKeys + 1);
  EXPECT_THAT(Refusal(StoreProtocol::Up(lookup)), HasSubstr("block_keys"));
  LayerBlocks blocks;
  blocks.blocks.resize(kMaxLayerBlocks + 1);
  EXPECT_THAT(Refusal(HandoffProtocol::Up(blocks)), HasSubstr("blocks"));
}

TEST(CodecRefuses, KeysThatAreNot16Bytes) {
  // LookupBlocks{block_keys: 15 bytes}, PutBlock{block_key: 15 bytes}
  const std::string key = std::string("\x12\x0f") + std::string(15, 'k');
  EXPECT_THAT(Decode<StoreProtocol::Up>("\x1a\x11" + key).status().message(), HasSubstr("block_keys"));
  EXPECT_THAT(Decode<StoreProtocol::Up>("\x32\x11" + key).status().message(), HasSubstr("block_key"));
}

TEST(CodecRefuses, RatesThatAreNoNumbers) {
  LoadReport report = SampleLoad();
  report.load.tokens_per_second = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Refusal(ReportProtocol::Up(report)), HasSubstr("tokens_per_second"));
}

}  // namespace
}  // namespace millrace::rpc
