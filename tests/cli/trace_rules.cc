#include "tests/cli/trace_rules.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace rullama::cli_test {
namespace {

using nlohmann::json;

constexpr double kRounding = 1e-3;  // us

using Track = std::pair<int64_t, int64_t>;  // process and thread

Track TrackOf(const json& event) {
  return {event.at("pid").get<int64_t>(), event.at("tid").get<int64_t>()};
}

class TraceChecker {
 public:
  std::string Check(const json& trace) {
    const json& unit = trace.at("displayTimeUnit");
    if (unit != "ms" && unit != "ns") return "displayTimeUnit is " + unit.dump();
    for (const json& event : trace.at("traceEvents")) {
      if (const std::string fault = Add(event); !fault.empty()) return fault + event.dump();
    }
    for (const auto& [id, names] : open_) {
      if (!names.empty()) return "not ended: " + names.back();
    }
    for (auto& [track, slices] : slices_) {
      if (!named_.contains({"thread_name", track})) return "a track without a name";
      if (!processes_.contains(track.first)) return "a process without a name";
      if (const std::string fault = Overlap(slices); !fault.empty()) return fault;
    }
    return "";
  }

 private:
  struct Slice {
    double begin, end;
    std::string name;
  };

  std::string Add(const json& event) {
    if (!event.at("name").is_string()) return "no name: ";
    const std::string phase = event.at("ph").get<std::string>();
    if (phase == "M") return AddName(event);
    if (!event.at("ts").is_number()) return "no time: ";
    if (phase == "X") return AddSlice(event);
    if (phase == "b" || phase == "e") return AddPart(event, phase == "b");
    return "unknown phase: ";
  }

  std::string AddName(const json& event) {
    const std::string what = event["name"].get<std::string>();
    if (!event.at("args").at("name").is_string()) return "names nothing: ";
    if (what == "process_name") processes_.insert(event.at("pid").get<int64_t>());
    return named_.insert({what, TrackOf(event)}).second ? "" : "named twice: ";
  }

  std::string AddSlice(const json& event) {
    const double begin = event["ts"].get<double>();
    const double length = event.at("dur").get<double>();
    if (length < 0) return "ends before it begins: ";
    slices_[TrackOf(event)].push_back({begin, begin + length, event["name"].get<std::string>()});
    return "";
  }

  std::string AddPart(const json& event, bool begins) {
    const std::tuple id(event.at("pid").get<int64_t>(), event.at("cat").get<std::string>(),
                        event.at("id2").at("local").get<std::string>());
    const std::string name = event["name"].get<std::string>();
    const double time = event["ts"].get<double>();
    const auto last = last_.try_emplace(id, time).first;
    if (time < last->second - kRounding) return "goes back in time: ";
    last->second = time;
    std::vector<std::string>& open = open_[id];
    if (begins) {
      open.push_back(name);
      return "";
    }
    if (open.empty() || open.back() != name) return "ends what has not begun: ";
    open.pop_back();
    return "";
  }

  static std::string Overlap(std::vector<Slice>& slices) {
    std::ranges::stable_sort(slices, [](const Slice& a, const Slice& b) {
      return std::tuple(a.begin, -a.end) < std::tuple(b.begin, -b.end);
    });
    std::vector<const Slice*> around;
    for (const Slice& slice : slices) {
      while (!around.empty() && around.back()->end <= slice.begin + kRounding) around.pop_back();
      if (!around.empty() && slice.end > around.back()->end + kRounding) {
        return slice.name + " begins within " + around.back()->name + " and ends after it";
      }
      around.push_back(&slice);
    }
    return "";
  }

  std::map<Track, std::vector<Slice>> slices_;
  std::set<std::pair<std::string, Track>> named_;
  std::set<int64_t> processes_;
  using AsyncTrack = std::tuple<int64_t, std::string, std::string>;  // process, category and id
  std::map<AsyncTrack, std::vector<std::string>> open_;
  std::map<AsyncTrack, double> last_;
};

}  // namespace

std::string TraceFault(const json& trace) {
  try {
    return TraceChecker().Check(trace);
  } catch (const json::exception& error) {
    return error.what();
  }
}

}  // namespace rullama::cli_test
