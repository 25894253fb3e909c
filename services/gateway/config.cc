#include "services/gateway/config.h"

#include <filesystem>

#include "common/api/error_body.h"
#include "common/base/random.h"

namespace millrace::gateway_service {

void Config::Describe(config::Schema& schema) {
  schema.Add("api-host", &api_host, {.help = "address that the HTTP API listens on; empty = --host"});
  schema.Add("port", &port, {.help = "port of the HTTP API; 0 = any free one"});
  schema.Add("model", &model, {.help = "GGUF file whose tokenizer and chat template are used", .required = true});
  schema.Add("served-model-name", &served_model_name, {.help = "what clients call the model; empty = the file's stem"});
  schema.Add("cache-dir", &cache_dir,
             {.help = "folder where digests of model files are remembered; empty = the user's cache folder"});
  schema.Add("prefill-balancers", &prefill_balancers,
             {.help = "host:port of the prefill balancer's replicas, comma-separated; names may have many addresses",
              .required = true});
  schema.Add("decode-balancers", &decode_balancers,
             {.help = "host:port of the decode balancer's replicas", .required = true});
  schema.Add("api-key-file", &api_key_file, {.help = "API keys, one a line; each key is a tenant. Empty = no keys"});
  schema.Add("allow-anonymous", &allow_anonymous, {.help = "serve without keys on addresses other than loopback"});
  schema.Add("max-requests", &max_requests, {.help = "requests at once; more are answered 429", .min = 1, .max = 1e6});
  schema.Add("max-connections", &max_connections,
             {.help = "HTTP connections at once; more are answered 503", .min = 1, .max = 1e6});
  schema.Add("max-body", &max_body,
             {.help = "largest request body; more is answered 413", .min = 1024, .max = 1 << 30});
  schema.Add("event-silence-ms", &event_silence,
             {.help = "silence after which a stream gets a comment, for proxies", .min = 100});
  schema.Add("reentry-budget", &rules.failure_budget,
             {.help = "how often a request enters again after workers failed it", .max = 100});
  schema.Add("reentries-at-once", &most_reentries_at_once,
             {.help = "requests that look for a new worker at once; the rest wait", .min = 1, .max = 1e6});
  schema.Add("accept-timeout-ms", &rules.accept_timeout,
             {.help = "longest wait for a worker to accept a request", .min = 100});
  schema.Add("request-timeout-ms", &rules.request_timeout, {.help = "longest life of a request", .min = 1000});
  schema.Add("heartbeat-ms", &liveness.heartbeat,
             {.help = "interval of heartbeats on every stream", .min = 10, .max = 60000});
  schema.Add("silence-ms", &liveness.silence, {.help = "a peer silent for so long is dead", .min = 50, .max = 600000});
  schema.Add("progress-ms", &liveness.progress,
             {.help = "a peer with work and no progress for so long is dead", .min = 50, .max = 600000});
}

Status Config::Validate(const std::string& host) const {
  auto bad = [](std::string message) { return Status(Code::kInvalidArgument, Reason::kBadValue, std::move(message)); };
  if (liveness.silence < 2 * liveness.heartbeat) return bad("--silence-ms must be at least twice --heartbeat-ms");
  if (api_key_file.empty() && !allow_anonymous && !http::IsLoopback(ApiHost(host))) {
    return bad((api_host.empty() ? "--host " : "--api-host ") + ApiHost(host) +
               " is open to others: give --api-key-file, or --allow-anonymous to serve anybody");
  }
  return OkStatus();
}

std::string Config::ModelName() const {
  return served_model_name.empty() ? std::filesystem::path(model).stem().string() : served_model_name;
}

http::ServerOptions Config::ServerOptions(const std::string& host) const {
  http::ServerOptions options;
  options.host = ApiHost(host);
  options.port = port;
  options.max_connections = max_connections;
  options.max_body_bytes = max_body.value;
  options.render_error = api::RenderHttpError;
  return options;
}

StatusOr<api::FrontendOptions> Config::FrontendOptions() const {
  api::FrontendOptions options;
  if (!api_key_file.empty()) {
    MR_ASSIGN_OR_RETURN(options.keys, api::ApiKeys::Load(api_key_file));
  }
  options.max_requests = max_requests;
  options.event_silence = event_silence;
  options.started_unix_s = WallClockMs() / 1000;
  options.random_seed = RandomSeed();
  return options;
}

runtime::GatewayOptions Config::GatewayOptions(std::shared_ptr<const recipe::ModelRecipe> recipe,
                                               std::string model_digest) const {
  runtime::GatewayOptions options;
  options.models.push_back({ModelName(), std::move(recipe), std::move(model_digest)});
  options.rules = rules;
  options.liveness = liveness;
  options.most_reentries_at_once = most_reentries_at_once;
  options.random_seed = RandomSeed();
  return options;
}

}  // namespace millrace::gateway_service
