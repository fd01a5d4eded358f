// Judges what simulated programs get by the history of the simulated filesystem: docs/protocol.md, "What is
// promised of a file that changes".
#pragma once

#include <chrono>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/simulated_store.hpp"

namespace copper::sim {

class Oracle {
  public:
    struct Options {
        // All nodes get the same version: nothing is lost or evicted, and each file is one extent.
        bool is_one_version = false;
        // What is right for the moment only was so, at the latest, this long before the question.
        std::optional<std::chrono::milliseconds> doubtful_max;
    };
    Oracle(Options options, const SimulatedStore& store) : options_(options), store_(store) {}

    // Some node wants the object. The first time counts: from then on, any version may become the job's.
    void wanted(const ObjectKey& key, TimePoint now);

    // A node that is not its reader reads the file, for itself: others may read another version.
    void read_alone(const std::string& path) { read_alone_.insert(path); }

    // An office has changed hands: from now on, a reader may read again what nodes got from its predecessor.
    void reader_changed() { options_.is_one_version = false; }

    struct Refresh {
        std::string path;
        TimePoint began;
        TimePoint returned;  // what a program asks from then on is not older than the beginning
    };
    void refreshed(Refresh refresh) {
        refreshes_.push_back(std::move(refresh));
        options_.is_one_version = false;
    }

    // Of a program's question.
    struct Times {
        TimePoint asked;
        TimePoint answered;
    };
    // What the job keeps, or what is right for the moment only.
    enum class Life : std::uint8_t { lasting, doubtful };

    // Each tells what is wrong with an answer; nothing if it is right.
    using Verdict = std::optional<std::string>;
    Verdict judge_absent(const std::string& path, Life life, Times times) const;
    Verdict judge_attributes(const std::string& path, const Attributes& attributes, Life life,
                             Times times) const;
    Verdict judge_names(const std::string& directory, const std::vector<std::string>& names, Life life,
                        Times times);
    // EAGAIN or an error of the filesystem, in place of bytes.
    Verdict judge_error(const std::string& path, int error, Times times) const;
    // The file has changed since its name was looked up.
    Verdict judge_stale(const std::string& path, Times times) const;
    // Since so long that nothing known of it is doubtful.
    bool is_at_rest(const std::string& path, TimePoint when) const;
    // Those that the bytes of a file may be of: each was whole at some moment since the first question.
    std::vector<Attributes> versions(const std::string& path, Times times) const;
    // Of a whole file: those of these versions that all its bytes are of.
    Verdict judge_bytes(const std::string& path, const std::vector<Attributes>& versions);

  private:
    enum class What : std::uint8_t { names, attributes, attributes_of_all, bytes };
    using Question = std::pair<What, std::string>;
    std::vector<TimePoint> moments(std::initializer_list<Question> questions, const std::string& path,
                                   Life life, Times times) const;
    std::vector<TimePoint> moments_of_attributes(const std::string& path, Life life, Times times) const;
    // The first answer counts for all nodes.
    Verdict agree(const Question& question, const std::vector<std::string>& answer);

    Options options_;
    const SimulatedStore& store_;
    std::map<Question, TimePoint> first_wanted_;
    std::vector<Refresh> refreshes_;
    std::map<Question, std::vector<std::string>> agreed_;
    std::set<std::string> read_alone_;
};

}  // namespace copper::sim
