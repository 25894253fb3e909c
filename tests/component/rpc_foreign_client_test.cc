// Clients that are not ours: any gRPC program that knows the .proto files, or only thinks so.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include "common/rpc/codec.h"
#include "common/rpc/grpc_status.h"
#include "tests/component/rpc_fixture.h"

namespace millrace::rpc {
namespace {

using peer::DecodeProtocol;
using ::testing::HasSubstr;

grpc::ByteBuffer Buffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

// One message up, then half-close; keeps what comes down.
class RawCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RawCall(grpc::GenericStub& stub, const std::string& method, const std::string& bytes) : up_(Buffer(bytes)) {
    stub.PrepareBidiStreamingCall(&context, method, {}, this);
    StartWriteLast(&up_, {});
    StartRead(&down_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    grpc::Slice slice;
    EXPECT_TRUE(down_.DumpToSingleSlice(&slice).ok());
    messages.Put({reinterpret_cast<const char*>(slice.begin()), slice.size()});
    StartRead(&down_);
  }
  void OnDone(const grpc::Status& status) override { done.Put(status); }

  grpc::ClientContext context;
  Mailbox<std::string> messages;
  Mailbox<grpc::Status> done;

 private:
  grpc::ByteBuffer up_;
  grpc::ByteBuffer down_;
};

class ForeignClient : public RpcTest<DecodeProtocol> {
 protected:
  grpc::Status Check(std::string& answer) {
    RawCall call(stub, "/grpc.health.v1.Health/Check", "");
    const auto status = call.done.Take();
    answer = call.messages.size() > 0 ? *call.messages.Take() : "";
    return status.value_or(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, ""));
  }

  grpc::GenericStub stub{grpc::CreateChannel(address, grpc::InsecureChannelCredentials())};
};

TEST_F(ForeignClient, MalformedMessageEndsItsStreamOnly) {
  auto& healthy = Open();
  auto& healthy_served = **service.accepted.Take();
  for (const std::string& bytes : {std::string(""), std::string("\xff\xff\xff"),
                                   std::string("\x0a\x04\x12\x02\xff\xfe", 6), std::string(5000, 'x')}) {
    RawCall call(stub, "/millrace.v1.Decode/Stream", bytes);
    const auto status = call.done.Take();
    ASSERT_TRUE(status.has_value());
    EXPECT_EQ(status->error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status->error_message(), HasSubstr("malformed message"));
    auto& served = **service.accepted.Take();
    EXPECT_EQ(served.closed.Take()->code(), Code::kInvalidArgument);
    EXPECT_EQ(served.messages.size(), 0u);
  }
  Send(healthy_served, peer::Heartbeat{});
  EXPECT_TRUE(healthy.messages.Take().has_value());
}

TEST_F(ForeignClient, HalfCloseRightAfterTheRequestIsServed) {
  RawCall call(stub, "/millrace.v1.Decode/Stream", Encode(DecodeProtocol::Up(peer::Attach{.session = "s"})));
  auto& served = **service.accepted.Take();
  EXPECT_EQ(std::get<peer::Attach>(*served.messages.Take()).session, "s");
  EXPECT_TRUE(served.closed.Take()->ok());
  Send(served, peer::TokenChunk{.tokens = {1}});
  EXPECT_TRUE(Decode<DecodeProtocol::Down>(*call.messages.Take()).ok());
  RunOn(server_loop, [&] { served.stream->Close(OkStatus()); });
  EXPECT_TRUE(call.done.Take()->ok());
}

TEST_F(ForeignClient, UnknownMethodIsUnimplemented) {
  for (const char* method : {"/millrace.v1.Decode/Other", "/millrace.v1.Prefill/Stream", "/x"}) {
    RawCall call(stub, method, "");
    EXPECT_EQ(call.done.Take()->error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
}

TEST_F(ForeignClient, HealthServiceSaysWhatSetServingSaid) {
  std::string answer;
  ASSERT_TRUE(Check(answer).ok());
  EXPECT_EQ(answer, "\x08\x02");  // NOT_SERVING
  server->SetServing(true);
  ASSERT_TRUE(Check(answer).ok());
  EXPECT_EQ(answer, "\x08\x01");  // SERVING
  server->SetServing(false);
  ASSERT_TRUE(Check(answer).ok());
  EXPECT_EQ(answer, "\x08\x02");
}

// A server that is not ours, or a proxy in between, ends calls without our details.
TEST(StatusOfAForeignServer, IsTheirsOrALostPeer) {
  EXPECT_EQ(FromGrpc({grpc::StatusCode::UNAVAILABLE, "m"}).reason(), Reason::kPeerLost);
  EXPECT_EQ(FromGrpc({grpc::StatusCode::INTERNAL, "m"}).code(), Code::kUnavailable);
  EXPECT_EQ(FromGrpc({grpc::StatusCode::PERMISSION_DENIED, "m"}).code(), Code::kPermissionDenied);
  EXPECT_EQ(FromGrpc({grpc::StatusCode::PERMISSION_DENIED, "m"}).message(), "m");
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
}

}  // namespace
}  // namespace millrace::rpc
