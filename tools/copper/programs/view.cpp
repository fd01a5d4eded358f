#include "tools/copper/programs/view.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "base/answer_in_time.hpp"
#include "base/path.hpp"
#include "base/processes.hpp"
#include "daemon/control/control.hpp"
#include "daemon/control/view.hpp"
#include "tools/copper/programs/mirror.hpp"

namespace copper::cli {

namespace {

constexpr std::chrono::seconds daemon_patience{1};

// They start programs elsewhere, which this node's view does not reach. Those programs get changed variables.
constexpr std::array launchers = {"srun",    "sbatch", "salloc",  "mpirun", "mpiexec", "mpiexec.hydra",
                                  "orterun", "prun",   "prterun", "flux",   "jsrun",   "aprun",
                                  "ibrun",   "pdsh",   "ssh",     "qsub",   "qrsh",    "blaunch"};

// They start set-user-id programs: newuidmap(1), fusermount3(1).
constexpr std::array borrowers_of_rights = {"podman", "buildah", "squashfuse", "fuse-overlayfs", "sshfs"};

bool is_one_of(const auto& names, const std::string& command) {
    return std::ranges::find(names, base_name(command)) != names.end();
}

// A program of the trees never has: the mirror is nosuid. So their filesystem is not asked.
bool has_rights_of_its_own(const Mirror& mirror, const std::string& command) {
    const auto is_elsewhere = [&mirror](const std::string& path) {
        const auto place = resolve_up_to(mirror, path);
        return place && !lies_in_trees(mirror, *place);
    };
    std::string directories;
    std::istringstream all(program_directories());
    for (std::string directory; std::getline(all, directory, ':');) {
        directories += is_elsewhere(directory) ? directory + ":" : "";
    }
    if (command.starts_with('/') && !is_elsewhere(command)) {
        return false;
    }
    const auto program = find_program(command, directories).value_or("");
    struct stat found = {};
    return (::stat(program.c_str(), &found) == 0 && (found.st_mode & (S_ISUID | S_ISGID)) != 0) ||
           ::getxattr(program.c_str(), "security.capability", nullptr, 0) > 0;
}

// The first of the trees that holds `path`; empty if none does.
std::string tree_of(const InstanceRecord& record, const std::string& path) {
    const auto found =
        std::ranges::find_if(record.trees, [&](const std::string& tree) { return is_within(path, tree); });
    return found != record.trees.end() ? *found : "";
}

tl::expected<View, std::string> make_view(const InstanceRecord& record, const std::string& instance) {
    const auto tell = [&instance](const char* verb, const std::string& argument) {
        return ask(instance + "/control", {.verb = verb, .argument = argument, .patience = daemon_patience});
    };
    const auto made = NewView::make(record.mount, record.trees);
    if (!made) {
        if (made.error().where == NoView::Where::node) {
            tell(verb::no_view, made.error().why);
        }
        return tl::make_unexpected(made.error().why);
    }
    const auto kept = tell(verb::keep_view, std::to_string(made->process()));
    if (!kept || !kept->error.empty()) {
        return tl::make_unexpected("the daemon does not keep it: " + (kept ? kept->error : kept.error()));
    }
    return view_of(made->process());
}

}  // namespace

std::string why_paths(const InstanceRecord& record, const std::string& command) {
    if (record.has_default_trees) {
        return "no --tree was given, so the mirror has whole filesystems, where programs may want to write";
    }
    std::error_code error;
    if (!UniqueFd(::open(".", O_PATH | O_CLOEXEC))) {
        return "the working directory cannot be opened";
    }
    if (const auto tree = tree_of(record, std::filesystem::current_path(error).string()); !tree.empty()) {
        return "the working directory lies in the tree " + tree + ", where nothing could be written";
    }
    if (is_one_of(launchers, command)) {
        return command + " starts programs elsewhere";
    }
    if (::geteuid() != 0 && is_one_of(borrowers_of_rights, command)) {
        return command + " starts set-user-id programs, whose rights count for nothing in a user namespace";
    }
    const Mirror mirror{.mount = record.mount, .trees = record.trees, .mounts = {}};
    if (::geteuid() != 0 && has_rights_of_its_own(mirror, command)) {
        return command + " has rights of its own (set-user-id), which count for nothing in a user namespace";
    }
    for (const std::string name : {"HOME", "TMPDIR"}) {
        const auto place = resolve_up_to(mirror, read_variable(name).value_or("/"));
        if (const auto tree = tree_of(record, place.value_or("")); !tree.empty()) {
            return "$" + name + " lies in the tree " + tree + ", where nothing could be written";
        }
    }
    return "";
}

int print_places() {
    const auto instance = running_instance({});
    const auto why = instance ? why_paths(*instance, "") : instance.error().reason;
    if (!why.empty()) {
        say(why);
        return exit_failed;
    }
    std::cout << instance->mount << '\0';
    for (const auto& tree : instance->trees) {
        std::cout << tree << '\0';
    }
    std::cout.flush();
    return std::cout.good() ? exit_done : exit_failed;
}

tl::expected<View, std::string> find_view(const InstanceRecord& record) {
    if (!is_beside(record.supervisor)) {
        return tl::make_unexpected(
            "this program sees other files than the daemon (a container, a chroot, another "
            "namespace)");
    }
    const auto instance = instance_directory(record.user, record.mount);
    UniqueFd turn;  // of the process that makes it; flock(2)
    auto kept = view_kept_by(record.supervisor);
    if (kept && !*kept) {
        turn = UniqueFd(::open(instance.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!lock_in_time(turn.get(), view_patience)) {
            return tl::make_unexpected("another process makes it, and waits for a filesystem");
        }
        kept = view_kept_by(record.supervisor);
    }
    if (!kept) {
        return tl::make_unexpected(kept.error());
    }
    if (*kept) {
        return std::move(**kept);
    }
    if (const auto now = read_instance(instance); now && !now->no_view.empty()) {
        return tl::make_unexpected(now->no_view);
    }
    return make_view(record, instance);
}

}  // namespace copper::cli
