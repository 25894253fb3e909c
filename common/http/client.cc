#include "common/http/client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <optional>
#include <utility>

namespace millrace::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using Tcp = asio::ip::tcp;
using BeastRequest = beast::http::request<beast::http::string_body>;
using Parser = beast::http::response_parser<beast::http::buffer_body>;

constexpr size_t kPieceBytes = 16 * 1024;

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

}  // namespace

std::string_view ClientResponse::HeaderValue(std::string_view name) const {
  for (const Header& header : headers) {
    if (header.name == name) return header.value;
  }
  return {};
}

StatusOr<Endpoint> ParseEndpoint(std::string_view url) {
  const std::string original(url);
  const auto bad = [&](const std::string& why) {
    return InvalidArgument("'" + original + "' " + why + "; expected http://host:port");
  };
  if (url.starts_with("https://")) return bad("needs TLS, which this client does not have");
  if (url.starts_with("http://")) url.remove_prefix(7);
  url = url.substr(0, url.find('/'));
  Endpoint endpoint;
  const size_t bracket = url.starts_with("[") ? url.find(']') : 0;
  if (bracket == std::string_view::npos) return bad("has no ']'");
  const size_t colon = url.find(':', bracket);
  endpoint.host = std::string(bracket > 0 ? url.substr(1, bracket - 1) : url.substr(0, colon));
  if (endpoint.host.empty()) return bad("names no host");
  if (colon != std::string_view::npos) {
    const std::string_view digits = url.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), endpoint.port);
    if (error != std::errc() || end != digits.data() + digits.size() || endpoint.port == 0)
      return bad("has no valid port");
  }
  return endpoint;
}

struct Client::State {
  State(Endpoint e, ClientOptions o) : endpoint(std::move(e)), options(o) {}

  std::string where() const { return endpoint.host + ":" + std::to_string(endpoint.port); }

  Status ToStatus(const error_code& error, const std::string& what) const {
    const std::string message = what + " " + where() + ": " + error.message();
    if (error == beast::error::timeout) return Status(Code::kDeadlineExceeded, Reason::kDeadline, message);
    if (error == beast::http::error::body_limit) return Status(Code::kResourceExhausted, message);
    const bool cut = error == beast::http::error::end_of_stream || error == beast::http::error::partial_message;
    if (!cut && error.category() == beast::http::make_error_code(beast::http::error::bad_version).category()) {
      return Internal(message);
    }
    return Status(Code::kUnavailable, Reason::kPeerLost, message);
  }

  // Starts one operation and runs it to its end, within `timeout`.
  template <class Start>
  error_code Run(Duration timeout, Start start) {
    error_code result;
    stream->expires_after(std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
    start([&result](const error_code& error, auto&&...) { result = error; });
    io.restart();
    io.run();
    return result;
  }

  Status Connect();
  Status SendRequest(const ClientRequest& request);
  void Disconnect() {
    stream.reset();
    buffer.clear();
  }

  const Endpoint endpoint;
  const ClientOptions options;
  asio::io_context io;
  std::optional<beast::tcp_stream> stream;
  beast::flat_buffer buffer;
};

Status Client::State::Connect() {
  Disconnect();
  error_code error;
  Tcp::resolver resolver(io);
  const auto addresses = resolver.resolve(endpoint.host, std::to_string(endpoint.port), error);
  if (error) return ToStatus(error, "resolve");
  stream.emplace(io);
  error = Run(options.connect_timeout, [&](auto done) {
    stream->async_connect(addresses, [done](const error_code& e, const auto&) { done(e); });
  });
  if (error) {
    stream.reset();
    return ToStatus(error, "connect to");
  }
  stream->socket().set_option(Tcp::no_delay(true), error);
  return OkStatus();
}

Status Client::State::SendRequest(const ClientRequest& request) {
  BeastRequest message;
  message.method_string(request.method);
  message.target(request.target);
  message.version(11);
  message.set(beast::http::field::host, where());
  for (const Header& header : request.headers) message.set(header.name, header.value);
  message.body() = request.body;
  message.prepare_payload();
  const error_code error =
      Run(options.idle_timeout, [&](auto done) { beast::http::async_write(*stream, message, done); });
  return error ? ToStatus(error, "send to") : OkStatus();
}

Client::Client(Endpoint endpoint, ClientOptions options)
    : state_(std::make_unique<State>(std::move(endpoint), options)) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;

StatusOr<ClientResponse> Client::Send(const ClientRequest& request) {
  std::string body;
  MR_ASSIGN_OR_RETURN(ClientResponse response, Stream(request, [&body](std::string_view piece) {
                        body += piece;
                        return true;
                      }));
  if (response.body.empty()) response.body = std::move(body);
  return response;
}

StatusOr<ClientResponse> Client::Stream(const ClientRequest& request,
                                        const std::function<bool(std::string_view)>& on_data) {
  State& s = *state_;
  std::optional<Parser> parser;
  // A kept connection may have been closed by the server meanwhile: then, and only before any byte of an answer, the
  // request is sent once more over a new one.
  for (bool fresh = false;; fresh = true) {
    if (!s.stream || fresh) {
      MR_RETURN_IF_ERROR(s.Connect());
      fresh = true;
    }
    parser.emplace();
    parser->body_limit(s.options.max_body_bytes);
    Status status = s.SendRequest(request);
    if (status.ok()) {
      const error_code error = s.Run(s.options.idle_timeout, [&](auto done) {
        beast::http::async_read_header(*s.stream, s.buffer, *parser, done);
      });
      if (!error) break;
      status = s.ToStatus(error, "read from");
    }
    s.Disconnect();
    if (fresh || status.code() != Code::kUnavailable) return status;
  }
  ClientResponse response;
  response.status = static_cast<int>(parser->get().result_int());
  for (const auto& field : parser->get()) {
    response.headers.push_back({Lower({field.name_string().data(), field.name_string().size()}),
                                {field.value().data(), field.value().size()}});
  }
  const bool wanted = response.status / 100 == 2;
  std::string piece(kPieceBytes, '\0');
  while (!parser->is_done()) {
    parser->get().body().data = piece.data();
    parser->get().body().size = piece.size();
    error_code error = s.Run(s.options.idle_timeout,
                             [&](auto done) { beast::http::async_read_some(*s.stream, s.buffer, *parser, done); });
    if (error == beast::http::error::need_buffer) error = {};
    if (error) {
      s.Disconnect();
      return s.ToStatus(error, "read from");
    }
    const std::string_view data(piece.data(), piece.size() - parser->get().body().size);
    if (data.empty()) continue;
    if (!wanted) {
      response.body += data;
    } else if (!on_data(data)) {
      s.Disconnect();
      return response;
    }
  }
  if (!parser->get().keep_alive()) s.Disconnect();
  return response;
}

}  // namespace millrace::http
