#pragma once
// The client side of peer streams over gRPC. A stream is one bidirectional call /millrace.v1.<Protocol::kName>/Stream
// of the messages in proto/millrace/v1.

#include <memory>

#include "common/base/executor.h"
#include "common/base/time.h"
#include "common/peer/protocols.h"
#include "common/peer/stream.h"

namespace millrace::rpc {

struct DialOptions {
  Duration connect_deadline = Milliseconds(1000);     // an address that does not answer by then fails the stream
  Duration reconnect_backoff = Milliseconds(100);     // after the first failed connect; doubles
  Duration reconnect_backoff_max = Seconds(1);        // meanwhile streams to that address fail at once
  Duration keepalive_interval = Seconds(10);          // pings a connection that has streams and is silent; at least 5 s
  Duration keepalive_deadline = Seconds(10);          // no answer by then: the connection is lost
  Duration unused_connection_lifetime = Seconds(60);  // without streams, then it is closed at some later Open
};

// Streams of `Protocol` (any of common/peer/protocols.h) whose handlers run on `executor`. Streams to one address share
// one connection, across dialers with equal options too. Nothing is connected before the first Open. `executor`
// outlives the dialer and every stream; streams may outlive the dialer.
//
// What on_closed reports beside what the server closed with: kUnavailable/kPeerLost when the connection could not be
// made or broke; kInternal when the server sent a message that is malformed; the status given to Close when that
// cancelled the stream; kUnimplemented when the server does not serve `Protocol`.
template <class Protocol>
std::unique_ptr<peer::Dialer<Protocol>> MakeDialer(Executor& executor, const DialOptions& options = {});

}  // namespace millrace::rpc
