#include "core/config/schema.h"
#include "core/config/served_model_codec.h"

namespace rullama {
namespace {

constexpr int64_t kMaxPort = 65535;
constexpr int64_t kMaxModels = 64;
constexpr int64_t kMaxRequests = 100'000;
constexpr int64_t kMaxSeconds = 86'400;
constexpr int64_t kMaxGapMilliseconds = 60'000;
constexpr int64_t kMaxHeaderBytes = int64_t{1} << 20;
constexpr int64_t kMaxBodyBytes = int64_t{1} << 30;
constexpr int64_t kMaxCacheMib = int64_t{1} << 24;
constexpr IntegerRange kSeconds{1, kMaxSeconds};

}  // namespace

BlockSpec ServerSchema() {
  return BlockBuilder<&Config::server>("server", "How `rullama serve` listens, and its limits.")
      .Field("models", &ServerConfig::models, ListCodec<ServedModelCodec>{},
             "The models to answer with, in place of `model.path`. The first is loaded at the "
             "start, the others when a request names them. `settings` has keys of this page, for "
             "one model: `{context.slots: 2}`.")
      .Field("aliases", &ServerConfig::aliases, ListCodec<ModelAliasCodec>{},
             "More names for the models, for programs that ask for one by a name of their own: "
             "`{name: claude-*, model: gemma4:e2b}`. No list of models has them. The first that "
             "fits counts.")
      .Field("keep_alive", &ServerConfig::keep_alive, KeepAliveCodec{},
             "How long a model stays loaded after its last answer, unless the request says it.",
             "-1 for one model, 5m for each of several")
      .Field("max_loaded_models", &ServerConfig::max_loaded_models, IntegerCodec{1, kMaxModels},
             "Models that are loaded at the same time. Another one takes the place of the one that "
             "was used least recently, once that has no request any more.")
      .Field("host", &ServerConfig::host, NameCodec{},
             "Address or name to listen on. One that other machines reach asks for `api_keys`.")
      .Field("port", &ServerConfig::port, IntegerCodec{0, kMaxPort},
             "Port to listen on; 0 is any free one.")
      .Field("api_keys", &ServerConfig::api_keys, ListCodec<FileCodec>{},
             "Files of keys, one a line: `KEY` or `NAME:KEY`, of 8 to 256 characters. With the "
             "keys of `RULLAMA_API_KEY`, those that clients may use; without any, no key is asked "
             "for. Relative ones are relative to the folder of this YAML file.")
      .Field("allowed_hosts", &ServerConfig::allowed_hosts, ListCodec<NameCodec>{},
             "Names of this server that clients may use, besides IP addresses and `localhost`.")
      .Field("allowed_origins", &ServerConfig::allowed_origins, ListCodec<NameCodec>{},
             "Pages of other servers that may use this one through a browser: "
             "`https://chat.example`.")
      .Field("max_queue", &ServerConfig::max_queue, IntegerCodec{0, kMaxRequests},
             "Answers that may wait for a slot.")
      .Field("max_queue_per_key", &ServerConfig::max_queue_per_key, IntegerCodec{0, kMaxRequests},
             "The same, of one key.",
             "half of `max_queue`, rounded up; all of it where no key is asked for")
      .Field("max_gap_ms", &ServerConfig::max_gap, IntegerCodec{1, kMaxGapMilliseconds},
             "Milliseconds between two tokens of an answer while prompts of other requests are "
             "read: the more, the sooner many requests that come together get their first tokens. "
             "A step of a prompt (`context.prefill_chunk`) may take longer.")
      .Field("queue_timeout_s", &ServerConfig::queue_timeout, IntegerCodec{kSeconds},
             "Seconds that a request may wait for a slot.")
      .Field("request_timeout_s", &ServerConfig::request_timeout, IntegerCodec{kSeconds},
             "Seconds from the slot to the last token.")
      .Field("header_timeout_s", &ServerConfig::header_timeout, IntegerCodec{kSeconds},
             "Seconds from the first byte of a request to the end of its head.")
      .Field("body_timeout_s", &ServerConfig::body_timeout, IntegerCodec{kSeconds},
             "Seconds for a whole body.")
      .Field("idle_timeout_s", &ServerConfig::idle_timeout, IntegerCodec{kSeconds},
             "Seconds that a connection may wait for its next request.")
      .Field("write_timeout_s", &ServerConfig::write_timeout, IntegerCodec{kSeconds},
             "Seconds without progress of a write, after which the client has left.")
      .Field("drain_s", &ServerConfig::drain, IntegerCodec{0, kMaxSeconds},
             "Seconds that running answers have after SIGTERM.")
      .Field("max_connections", &ServerConfig::max_connections, IntegerCodec{1, kMaxRequests},
             "Open connections.")
      .Field("max_header_bytes", &ServerConfig::max_header_bytes,
             IntegerCodec{1024, kMaxHeaderBytes}, "Bytes of the head of a request.")
      .Field("max_body_bytes", &ServerConfig::max_body_bytes, IntegerCodec{1024, kMaxBodyBytes},
             "Bytes of the body of a request.")
      .Field("max_body_memory_mib", &ServerConfig::max_body_memory_mib,
             IntegerCodec{1, kMaxCacheMib},
             "Host memory, in MiB, for the bodies of all requests that are being read or answered, "
             "of each body without its first 64 KiB; at least `max_body_bytes`.")
      .Field("prefix_cache_mib", &ServerConfig::prefix_cache_mib, IntegerCodec{0, kMaxCacheMib},
             "Host memory, in MiB, for snapshots of prompts that later requests may begin with; 0: "
             "none are kept.")
      .Field("media_cache_mib", &ServerConfig::media_cache_mib, IntegerCodec{0, kMaxCacheMib},
             "Host memory, in MiB, for the soft tokens of recent pictures and sounds, so that they "
             "are not encoded again; 0: none are kept.")
      .Field("page", &ServerConfig::page, BoolCodec{}, "Offer the chat page at `/`.")
      .Field(
          "web_path", &ServerConfig::web_path, FileCodec{},
          "Folder of the page that runs models in the browser itself ([browser.md](browser.md)), "
          "offered at `/web`. A relative one is relative to the folder of this YAML file.",
          "it is not offered")
      .Field("metrics", &ServerConfig::metrics, BoolCodec{}, "Offer `/metrics`.")
      .Field("embeddings", &ServerConfig::embeddings, BoolCodec{},
             "Offer the endpoints of embeddings.")
      .Field("prefix_cache_path", &ServerConfig::prefix_cache_path, FileCodec{},
             "Folder for snapshots of prompts that outlive the server ([server.md](server.md)); it "
             "is made if it is not there. Prompts are in the files as they are. A relative one is "
             "relative to the folder of this YAML file.",
             "snapshots are in memory alone")
      .Field("prefix_cache_disk_mib", &ServerConfig::prefix_cache_disk_mib,
             IntegerCodec{1, kMaxCacheMib}, "Size, in MiB, of all files in that folder.")
      .Field("slots_endpoint", &ServerConfig::slots_endpoint, BoolCodec{},
             "Show at `GET /slots` what the slots do. No text of a request is shown.")
      .Field(
          "slot_save_path", &ServerConfig::slot_save_path, FileCodec{},
          "Folder for slots that clients save ([server.md](server.md)), which exists. Prompts are "
          "in the files as they are. A relative one is relative to the folder of this YAML file.",
          "slots are not saved")
      .Field("slot_save_mib", &ServerConfig::slot_save_mib, IntegerCodec{1, kMaxCacheMib},
             "Size, in MiB, of all files in that folder; a save that would pass it is refused.")
      .Field("allow_pull", &ServerConfig::allow_pull, BoolCodec{},
             "Let clients download models through `/api/pull` ([downloads.md](downloads.md)). They "
             "go to the stores and are not served.")
      .Build();
}

}  // namespace rullama
