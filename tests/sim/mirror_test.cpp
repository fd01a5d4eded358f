// Programs of a whole job read files through the daemon's own answers to the kernel (fuse/), while the
// filesystem changes: what they see must be what docs/protocol.md promises.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <utility>

#include "base/path.hpp"
#include "fuse/operations.hpp"
#include "tests/sim/seeds.hpp"
#include "tests/sim/simulation.hpp"

namespace copper::sim {
namespace {

// Of a request of the kernel: some lie in two extents.
constexpr std::size_t request_bytes_max = extent_bytes * 3 / 8;

// How often a file at rest may give ESTALE: once since it is of another size than a node has listed, once
// more since it has several extents (docs/reference.md, "Known limits").
constexpr int stale_at_rest_max = 2;

struct Answer {
    int error = 0;
    InodeId inode = 0;  // 0: no such name
    struct stat st {};
    KernelCaching caching = KernelCaching::never;
    std::vector<std::byte> bytes = {};
};

class SimulatedReply final : public Reply {
  public:
    explicit SimulatedReply(std::function<void(Answer)> answered) : answered_(std::move(answered)) {}

    void error(int error_number) override { answered_({.error = error_number}); }
    Sent entry(InodeId inode, const struct stat& attributes, KernelCaching caching) override {
        answered_({.inode = inode, .st = attributes, .caching = caching});
        return Sent::yes;
    }
    Sent bytes(std::span<const iovec> pieces) override {
        Answer answer;
        for (const iovec& piece : pieces) {
            const auto* begin = static_cast<const std::byte*>(piece.iov_base);
            answer.bytes.insert(answer.bytes.end(), begin, begin + piece.iov_len);
        }
        answered_(std::move(answer));
        return Sent::yes;
    }
    void attributes(const struct stat&) override { FAIL(); }
    void link(const std::string&) override { FAIL(); }
    Sent opened(BackingId) override { return Sent::no; }
    void size(std::size_t) override { FAIL(); }
    void position(std::uint64_t) override { FAIL(); }
    void statistics(const struct statvfs&) override { FAIL(); }

  private:
    const std::function<void(Answer)> answered_;
};

// The handlers of one node, a kernel that keeps names, and programs that read files.
class MirrorPrograms final : public Programs {
  public:
    explicit MirrorPrograms(const Surroundings& node) : node_(node) {}

    void use(const std::string& path, std::function<void()> done) override {
        attempt(std::make_shared<Program>(Program{.path = path, .done = std::move(done)}));
    }

  private:
    // One that reads a file from anywhere to the end.
    struct Program {
        const std::string path;
        const std::function<void()> done;
        TimePoint asked{};
        InodeId inode = 0;
        std::uint64_t size = 0;
        std::uint64_t offset = 0;
        std::vector<Attributes> versions = {};  // those that all its bytes may be of
        int stale_at_rest = 0;
    };
    using ProgramPtr = std::shared_ptr<Program>;

    // What the kernel knows of an inode.
    struct Known {
        std::uint64_t lookups = 0;
        std::uint32_t opens = 0;
        std::optional<std::vector<Attributes>> versions = {};  // those that all its bytes may be of
    };

    Oracle::Times times(const Program& program) const { return {program.asked, node_.now()}; }

    ReplyPtr reply(std::function<void(Answer)> answered) const {
        return std::make_shared<SimulatedReply>(std::move(answered));
    }

    void attempt(const ProgramPtr& program) {
        program->asked = node_.now();
        if (node_.random() % 4 == 0) {
            drop_name(program->path);
        }
        look_up(program->path, [this, program](const Answer& answer) { opened(program, answer); });
    }

    // Name by name, from the root; the kernel answers what it may repeat.
    void look_up(const std::string& path, const std::function<void(const Answer&)>& then) {
        if (path == "/") {
            then({.inode = root_inode});
            return;
        }
        if (const auto known = names_.find(path); known != names_.end()) {
            then(known->second);
            return;
        }
        look_up(std::string(parent_path(path)), [this, path, then](const Answer& parent) {
            if (parent.inode == 0) {
                then(parent);
                return;
            }
            operations_.lookup(reply([this, path, then](const Answer& answer) {
                                   if (answer.inode != 0) {
                                       ++inodes_[answer.inode].lookups;
                                   }
                                   if (answer.error == 0 && answer.caching == KernelCaching::forever) {
                                       names_[path] = answer;
                                   }
                                   then(answer);
                               }),
                               parent.inode, base_name(path));
        });
    }

    // The kernel forgets a name, and its inode if no program has it open.
    void drop_name(const std::string& path) {
        if (const auto known = names_.find(path); known != names_.end()) {
            const InodeId inode = known->second.inode;
            names_.erase(known);
            forget_unless_used(inode);
        }
    }

    void forget_unless_used(InodeId inode) {
        const bool has_name = std::any_of(names_.begin(), names_.end(),
                                          [inode](const auto& name) { return name.second.inode == inode; });
        const auto known = inodes_.find(inode);
        if (known != inodes_.end() && known->second.opens == 0 && !has_name) {
            operations_.forget(inode, known->second.lookups);
            inodes_.erase(known);
        }
    }

    void opened(const ProgramPtr& program, const Answer& answer) {
        const auto life =
            answer.caching == KernelCaching::forever ? Oracle::Life::lasting : Oracle::Life::doubtful;
        if (answer.error != 0) {
            node_.wrong("lookup of " + program->path + ": error " + std::to_string(answer.error));
            program->done();
        } else if (answer.inode == 0) {
            expect(node_.oracle.judge_absent(program->path, life, times(*program)));
            program->done();
        } else {
            expect(node_.oracle.judge_attributes(program->path, told(answer.st), life, times(*program)));
            program->inode = answer.inode;
            program->size = static_cast<std::uint64_t>(answer.st.st_size);
            program->offset = node_.random() % (program->size / request_bytes_max + 1) * request_bytes_max;
            ++inodes_[answer.inode].opens;
            read(program);
        }
    }

    static Attributes told(const struct stat& st) {
        const auto stamp = [](const timespec& time) {
            return Timestamp{time.tv_sec, static_cast<std::uint32_t>(time.tv_nsec)};
        };
        Attributes attributes;
        attributes.inode = st.st_ino;
        attributes.mode = st.st_mode;
        attributes.size = static_cast<std::uint64_t>(st.st_size);
        attributes.blocks = static_cast<std::uint64_t>(st.st_blocks);
        attributes.modified = stamp(st.st_mtim);
        attributes.changed = stamp(st.st_ctim);
        return attributes;
    }

    void close(const ProgramPtr& program) {
        --inodes_.at(program->inode).opens;
        forget_unless_used(program->inode);
    }

    void read(const ProgramPtr& program) {
        if (program->offset == program->size) {
            finish(program);
            return;
        }
        const std::size_t bytes = std::min<std::uint64_t>(request_bytes_max, program->size - program->offset);
        operations_.read(reply([this, program, bytes](const Answer& answer) { got(program, bytes, answer); }),
                         program->inode, {.offset = program->offset, .bytes = bytes});
    }

    void got(const ProgramPtr& program, std::size_t wanted, const Answer& answer) {
        if (answer.error != 0) {
            failed(program, answer.error);
            return;
        }
        auto versions = node_.oracle.versions(program->path, times(*program));
        std::erase_if(versions, [&](const Attributes& version) {
            return version.size != program->size || answer.bytes.size() != wanted ||
                   !SimulatedStore::is_intact(program->path, version, program->offset, answer.bytes);
        });
        auto& known = inodes_.at(program->inode).versions;
        if (known) {
            std::erase_if(versions, [&](const Attributes& version) {
                return std::ranges::find(*known, version) == known->end();
            });
        }
        known = versions;
        program->offset += wanted;
        node_.later(microseconds(2000), [this, program] { read(program); });
    }

    void finish(const ProgramPtr& program) {
        const auto& versions = inodes_.at(program->inode).versions;
        if (versions) {
            expect(node_.oracle.judge_bytes(program->path, *versions));
            const bool is_later = !versions->empty() && versions->front().modified.nanoseconds > 0;
            node_.report.later_versions += is_later ? 1 : 0;
        }
        close(program);
        program->done();
    }

    // A program tries again after ESTALE.
    void failed(const ProgramPtr& program, int error) {
        close(program);
        if (error != ESTALE) {
            expect(node_.oracle.judge_error(program->path, error, times(*program)));
            program->done();
            return;
        }
        expect(node_.oracle.judge_stale(program->path, times(*program)));
        program->stale_at_rest += node_.oracle.is_at_rest(program->path, program->asked) ? 1 : 0;
        if (program->stale_at_rest > stale_at_rest_max) {
            node_.wrong(program->path + " is stale although it is at rest");
            program->done();
            return;
        }
        node_.later(milliseconds(500), [this, program] { attempt(program); });
    }

    void expect(const Oracle::Verdict& verdict) const {
        if (verdict) {
            node_.wrong(*verdict);
        }
    }

    static SessionOptions options_of(const Surroundings& node) {
        SessionOptions options{.mount_point = "/m", .trees = node.trees, .root = {}};
        options.root.mode = S_IFDIR | 0755U;
        return options;
    }

    const Surroundings node_;
    FuseCounters counters_;
    std::vector<std::byte> memory_ = std::vector<std::byte>(std::size_t{1} << 18U);
    std::map<std::string, Answer> names_;  // that the kernel may repeat
    std::map<InodeId, Known> inodes_;
    Operations operations_{
        options_of(node_),
        node_.cache,
        counters_,
        {.attributes = [](InodeId) {},
         .content = [](InodeId) {},
         .name =
             [this](InodeId parent, const std::string& name, const std::function<void()>& then) {
                 if (const auto path = operations_.inodes().path(parent)) {
                     drop_name(join_path(*path, name));
                 }
                 then();
             }},
        memory_};
};

Scenario changing(std::uint64_t seed, Faults faults) {
    Scenario scenario = random_scenario_of_few_nodes(seed, faults);
    scenario.store.names_to_come = static_cast<std::uint32_t>(seed % 4);
    scenario.file_changes = static_cast<std::uint32_t>(seed % 50);
    scenario.pause_between_operations_max = milliseconds(400);
    scenario.refreshes = 0;  // nobody here tells the kernels of these programs
    return scenario;
}

Report run(const Scenario& scenario) {
    return Simulation(scenario,
                      [](const Surroundings& node) { return std::make_unique<MirrorPrograms>(node); })
        .run();
}

// Without faults, all nodes get the same version.
TEST(Mirror, WhatChangesIsOfOneVersionOnAllNodes) {
    std::uint64_t later_versions = 0;
    for_each_seed(50, [&](std::uint64_t seed) {
        const Scenario scenario = changing(seed, Faults::none);
        SCOPED_TRACE(replay(scenario));
        const Report report = run(scenario);
        expect_right(report);
        EXPECT_EQ(report.direct_reads, 0U);
        later_versions += report.later_versions;
    });
    EXPECT_TRUE(later_versions > 0 || seeds(2).size() == 1) << "nothing has changed";
}

// Whatever is lost, each program gets one version, or is told.
TEST(Mirror, FaultsMixNoVersions) {
    for_each_seed(50, [&](std::uint64_t seed) {
        Scenario scenario = changing(seed, Faults::all);
        if (seed % 4 == 0) {  // files of several extents that change while programs read them
            scenario.store = {.directories = 1, .files_per_directory = 3, .file_bytes_max = 3 * extent_bytes};
            scenario.operations_per_client = 10;
            scenario.clients_per_node = 1;
            scenario.file_changes = 50;
        }
        if (seed % 3 == 0) {
            break_a_mount(scenario);
        }
        SCOPED_TRACE(replay(scenario));
        expect_right(run(scenario), BrokenMounts::read_for_themselves);
    });
}

}  // namespace
}  // namespace copper::sim
