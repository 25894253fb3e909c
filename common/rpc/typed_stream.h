#pragma once
// Typed messages over a Call of bytes.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/peer/stream.h"
#include "common/rpc/call.h"
#include "common/rpc/codec.h"

namespace millrace::rpc {

template <class Out>
class TypedStream final : public peer::Stream<Out> {
 public:
  explicit TypedStream(std::shared_ptr<Call> call) : call_(std::move(call)) {}
  ~TypedStream() override { call_->Abandon(); }
  TypedStream(const TypedStream&) = delete;
  TypedStream& operator=(const TypedStream&) = delete;

  void Send(Out message) override { call_->Send(Encode(message)); }
  void Close(Status status) override { call_->Close(std::move(status)); }
  size_t pending_sends() const override { return call_->pending_sends(); }

 private:
  const std::shared_ptr<Call> call_;
};

template <class In>
class TypedReceiver final : public Receiver {
 public:
  explicit TypedReceiver(peer::StreamHandler<In> handler)
      : handler_(std::make_shared<peer::StreamHandler<In>>(std::move(handler))) {}

  Status Decode(std::string_view bytes) override {
    MR_ASSIGN_OR_RETURN(message_, rpc::Decode<In>(bytes));
    return OkStatus();
  }

  void Deliver() override {
    const std::shared_ptr<peer::StreamHandler<In>> handler = handler_;  // may be forgotten while it runs
    if (handler != nullptr && handler->on_message) handler->on_message(*std::exchange(message_, std::nullopt));
  }

  void Closed(Status status) override {
    const std::shared_ptr<peer::StreamHandler<In>> handler = std::exchange(handler_, nullptr);
    if (handler != nullptr && handler->on_closed) handler->on_closed(std::move(status));
  }

  void Forget() override { handler_ = nullptr; }

 private:
  std::optional<In> message_;
  std::shared_ptr<peer::StreamHandler<In>> handler_;  // belongs to the executor
};

inline std::string MethodName(std::string_view protocol) {
  return std::string("/millrace.v1.").append(protocol).append("/Stream");
}

}  // namespace millrace::rpc
