#pragma once
// One gRPC call as a stream of messages in bytes, driven from the executor of its peer::Stream. A call keeps itself
// alive until gRPC is done with it, whatever its stream does; once its stream is gone (Abandon), it never touches the
// executor or the handlers again.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/executor.h"
#include "common/base/status.h"

namespace grpc {
class ByteBuffer;
class Channel;
class GenericCallbackServerContext;
template <class Request, class Response>
class ServerBidiReactor;
}  // namespace grpc

namespace millrace::rpc {

// Where a call's messages go. Decode runs on a gRPC thread and keeps the message until Deliver, which always comes
// before the next Decode. The other methods run on the executor.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual Status Decode(std::string_view bytes) = 0;
  virtual void Deliver() = 0;
  virtual void Closed(Status status) = 0;  // once, last
  virtual void Forget() = 0;               // drops the handlers, which may be running; later calls do nothing
};

// The methods of a stream, from the executor; contract in common/peer/stream.h.
class Call {
 public:
  virtual ~Call() = default;
  virtual void Send(std::string bytes) = 0;
  virtual void Close(Status status) = 0;
  virtual size_t pending_sends() const = 0;
  // The stream is destroyed. Also from another thread once the executor has stopped.
  virtual void Abandon() = 0;
};

std::shared_ptr<Call> StartClientCall(std::shared_ptr<grpc::Channel> channel, const std::string& method,
                                      Executor& executor, std::shared_ptr<Receiver> receiver);

// On the executor: makes the stream of `call`, has the service accept it and returns where messages go.
using AcceptCall = std::function<std::shared_ptr<Receiver>(std::shared_ptr<Call> call)>;
using ServerReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// The reactor of a new call, which deletes itself. `accept` and `executor` live until `done` is called, on a gRPC
// thread, when gRPC is done with the call.
ServerReactor* StartServerCall(grpc::GenericCallbackServerContext& context, const AcceptCall& accept,
                               Executor& executor, std::function<void()> done);

}  // namespace millrace::rpc
