// Slurm: a SPANK plugin (spank(7)). A job asks for its mirror by --copper[=TREE[:TREE ...]]. Its script and
// each task of its steps then see the mirror at the trees' own paths. Root mounts it, so the node needs no
// user namespaces. It does what slurm-prolog.sh, slurm-epilog.sh and slurm-task-prolog.sh do, which this
// replaces.
//
//     cc -shared -fPIC -O2 -o /usr/lib64/slurm/copper.so slurm-spank.c
//
// In plugstack.conf, with the directories that users may cover with a mirror of theirs, for their own tasks:
//
//     optional copper.so trees=/lustre/sw:/soft [site=/opt/copper/current/libexec/copper/site]
//
// What a mirror shows is what its user's daemon says. So nothing is covered from which programs with root's
// rights read, like /etc: only what lies below `trees`. No failure here fails a job.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(copper, 1)

enum { text_bytes_max = 1 << 16, trees_max = 64, exit_unknown = 127, look_seconds = 30 };

static bool asked;
static const char* asked_trees;  // NULL: as the job's environment says
static const char* allowed = "";
static const char* site = "/opt/copper/current/libexec/copper/site";
// Of a step: "0" if it does without the mirror.
static const char* const switch_name = "COPPER_MIRROR";

extern char** environ;

static int ask(int value, const char* trees, int remote) {
    (void)value;
    (void)remote;
    asked = true;
    asked_trees = trees != NULL && *trees != '\0' ? strdup(trees) : NULL;
    return ESPANK_SUCCESS;
}

static struct spank_option option = {
    .name = "copper",
    .arginfo = "TREE[:TREE...]",
    .usage = "start a mirror of these directories of shared filesystems, and see it at their paths",
    .has_arg = 2,  // optional
    .cb = ask};

// Those of plugstack.conf.
static void read_words(int words, char** word) {
    for (int i = 0; i < words; ++i) {
        if (strncmp(word[i], "trees=", strlen("trees=")) == 0) {
            allowed = strdup(word[i] + strlen("trees="));
        } else if (strncmp(word[i], "site=", strlen("site=")) == 0) {
            site = strdup(word[i] + strlen("site="));
        } else {
            slurm_error("copper: plugstack.conf: %s: must be trees=DIR[:DIR...] or site=DIR", word[i]);
        }
    }
}

int slurm_spank_init(spank_t job, int words, char** word) {
    read_words(words, word);
    return spank_context() == S_CTX_SLURMD ? ESPANK_SUCCESS : spank_option_register(job, &option);
}

static bool is_off(spank_t job) {
    char value[2] = "";
    spank_getenv(job, switch_name, value, sizeof(value));
    return strcmp(value, "0") == 0;
}

// To the job's output, once a node and step, in one line.
static void tell(spank_t job, const char* what, const char* why) {
    int task = 0;
    char line[1024];
    if (spank_get_item(job, S_TASK_ID, &task) == ESPANK_SUCCESS && task != 0) {
        return;
    }
    why += strncmp(why, "copper: ", strlen("copper: ")) == 0 ? strlen("copper: ") : 0;
    snprintf(line, sizeof(line), "copper: %s: %.*s", what, (int)strcspn(why, "\n"), why);
    for (char* each = line; *each != '\0'; ++each) {
        *each = (unsigned char)*each < ' ' ? '?' : *each;
    }
    slurm_spank_log("%s", line);
}

// slurmstepd blocks most signals.
static void unblock_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    signal(SIGALRM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

// ---- the process beside a task that covers its trees

// For good: the user's ids, with no right of root's but to mount.
static bool become_mounting_user(spank_t job) {
    uid_t user = 0;
    gid_t group = 0;
    gid_t* groups = NULL;
    int count = 0;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    const struct __user_cap_data_struct rights[2] = {
        {.effective = 1U << CAP_SYS_ADMIN, .permitted = 1U << CAP_SYS_ADMIN, .inheritable = 0}, {0, 0, 0}};
    return spank_get_item(job, S_JOB_UID, &user) == ESPANK_SUCCESS &&
           spank_get_item(job, S_JOB_GID, &group) == ESPANK_SUCCESS &&
           spank_get_item(job, S_JOB_SUPPLEMENTARY_GIDS, &groups, &count) == ESPANK_SUCCESS &&
           prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) == 0 && setgroups((size_t)count, groups) == 0 &&
           setresgid(group, group, group) == 0 && setresuid(user, user, user) == 0 &&
           syscall(SYS_capset, &header, rights) == 0;
}

// `path` has no links any more.
static bool is_allowed(const char* path) {
    bool is_within = false;
    for (const char* each = allowed; !is_within && *each != '\0';) {
        const size_t length = strcspn(each, ":");
        char* given = strndup(each, length);
        char* real = given != NULL ? realpath(given, NULL) : NULL;
        const size_t bytes = real != NULL ? strlen(real) : 0;
        is_within =
            bytes > 1 && strncmp(path, real, bytes) == 0 && (path[bytes] == '/' || path[bytes] == '\0');
        free(real);
        free(given);
        each += length + (each[length] == ':');
    }
    return is_within;
}

// Of a process that holds this file open. The link in /proc leads to that very file, whatever its path has
// become.
static void name_of(int file, char name[32]) {
    snprintf(name, 32, "/proc/self/fd/%d", file);
}

// Why a tree cannot be covered, or NULL. For become_mounting_user(): a FUSE mount lets in its user alone, not
// root, and what the user may not reach is not shown.
static const char* cover(const char* mount_point, const char* tree) {
    static char path[2 * PATH_MAX];
    char source[32];
    char target[32];
    struct statfs filesystem;
    snprintf(path, sizeof(path), "%s%s", mount_point, tree);
    const int mirrored = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int original = open(tree, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (mirrored < 0 || original < 0 || fstatfs(mirrored, &filesystem) != 0) {
        return strerror(errno);
    }
    if (filesystem.f_type != FUSE_SUPER_MAGIC || (filesystem.f_flags & ST_NOSUID) == 0) {
        return "its mirror is not there";
    }
    name_of(mirrored, source);
    name_of(original, target);
    const ssize_t length = readlink(target, path, PATH_MAX);
    path[length > 0 ? length : 0] = '\0';
    if (!is_allowed(path)) {
        return "not one of the directories that this site lets users cover (plugstack.conf)";
    }
    return mount(source, target, NULL, MS_BIND, NULL) == 0 ? NULL : strerror(errno);
}

// Waits for the mirror's mount point and the trees, each with a NUL behind it. Answers with each tree that is
// not covered, and why, a line each.
static void cover_when_told(spank_t job, int task) {
    static char places[text_bytes_max];
    static char answer[text_bytes_max];
    size_t length = 0;
    unblock_signals();
    const ssize_t got = become_mounting_user(job) ? recv(task, places, sizeof(places) - 1, 0) : 0;
    if (got <= 0) {
        return;
    }
    alarm(look_seconds);  // a mirror may not answer
    const char* tree = places + strlen(places) + 1;
    for (int i = 0; i < trees_max && tree < places + got; ++i, tree += strlen(tree) + 1) {
        const char* why = cover(places, tree);
        if (why != NULL && length < sizeof(answer)) {
            length += (size_t)snprintf(answer + length, sizeof(answer) - length, "%s: %s\n", tree, why);
        }
    }
    send(task, answer, length < sizeof(answer) ? length : sizeof(answer) - 1, MSG_NOSIGNAL);
}

static pid_t coverer = -1;
static int to_coverer = -1;

// Root begins it in the mount namespace of the task. It ends with the task at the latest. A mirror that is
// mounted later appears there, too, if the node's root is a shared mount, as systemd makes it
// (mount_namespaces(7)).
static void begin_coverer(spank_t job) {
    int ends[2];
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        tell(job, "this task does not see its mirror", strerror(errno));
        return;
    }
    coverer = fork();
    if (coverer == 0) {
        close(ends[0]);
        cover_when_told(job, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    to_coverer = ends[0];
}

// Without places, it only ends.
static void cover_by_coverer(spank_t job, const char* places, size_t bytes) {
    static char answer[text_bytes_max];
    ssize_t got = 0;
    int status = 0;
    if (bytes > 0 && send(to_coverer, places, bytes, MSG_NOSIGNAL) > 0) {
        got = recv(to_coverer, answer, sizeof(answer) - 1, 0);
    }
    close(to_coverer);
    while (waitpid(coverer, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) {
        tell(job, "this task does not see its mirror", "it does not answer");
    }
    answer[got > 0 ? got : 0] = '\0';
    for (const char* line = strtok(answer, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        tell(job, "not covered by the mirror", line);
    }
}

// ---- the programs of the site that the user runs

// Keeps what the program prints in `said`, with a NUL behind it. Returns its exit code, and the number of
// bytes in `bytes`.
static int run(char** environment, const char* const* words, char* said, size_t* bytes) {
    int ends[2];
    const pid_t child = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (child == 0) {
        const int nothing = open("/dev/null", O_RDWR);
        dup2(nothing, STDIN_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        unblock_signals();
        execve(words[0], (char* const*)words, environment);
        dprintf(STDOUT_FILENO, "%s: %s", words[0], strerror(errno));
        _exit(exit_unknown);
    }
    *bytes = 0;
    said[0] = '\0';
    if (child < 0) {
        return exit_unknown;
    }
    close(ends[1]);
    for (ssize_t got = 1; got > 0 || (got < 0 && errno == EINTR);) {
        got = read(ends[0], said + *bytes, text_bytes_max - 1 - *bytes);
        *bytes += got > 0 ? (size_t)got : 0;
    }
    close(ends[0]);
    said[*bytes] = '\0';
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : exit_unknown;
}

static bool is_named(const char* entry, const char* name) {
    return strncmp(entry, name, strlen(name)) == 0 && entry[strlen(name)] == '=';
}

// The steps of the program that starts the mirror are those of the daemons.
static char** environment_of_start(char** environment) {
    size_t count = 0;
    while (environment[count] != NULL) {
        ++count;
    }
    char** changed = calloc(count + 3, sizeof(*changed));
    char* trees = NULL;
    if (changed == NULL || asprintf(&trees, "COPPER_TREE=%s", asked_trees != NULL ? asked_trees : "") < 0) {
        return environment;
    }
    char** next = changed;
    *next++ = "COPPER_MIRROR=0";
    if (asked_trees != NULL) {
        *next++ = trees;
    }
    for (char** each = environment; *each != NULL; ++each) {
        if (!is_named(*each, switch_name) && !(asked_trees != NULL && is_named(*each, "COPPER_TREE"))) {
            *next++ = *each;
        }
    }
    return changed;
}

static void start_mirror(spank_t job, char** environment) {
    char* script = NULL;
    static char said[text_bytes_max];
    size_t bytes = 0;
    if (asprintf(&script, "%s/slurm-start.sh", site) > 0 &&
        run(environment_of_start(environment), (const char* const[]){script, NULL}, said, &bytes) != 0) {
        tell(job, "this job runs without its mirror", said);
        if (spank_remote(job) == 1) {
            spank_setenv(job, switch_name, "0", 1);
        } else {
            setenv(switch_name, "0", 1);
        }
    }
}

// Its script, or the shell of salloc on a node.
static bool is_of_job_itself(spank_t job) {
    uint32_t step = 0;
    return spank_get_item(job, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
           (step == SLURM_BATCH_SCRIPT || step == SLURM_INTERACTIVE_STEP);
}

// ---- what Slurm calls

// Of a task, as root, before Slurm's control of the step reaches it: nothing may wait here.
int slurm_spank_task_init_privileged(spank_t job, int words, char** word) {
    (void)words;
    (void)word;
    if (asked && !is_off(job)) {
        begin_coverer(job);
    }
    return ESPANK_SUCCESS;
}

// Of the same task, as the user. Slurm ends what waits here like the program that follows.
int slurm_spank_task_init(spank_t job, int words, char** word) {
    (void)words;
    (void)word;
    char** environment = NULL;
    char* program = NULL;
    static char said[text_bytes_max];
    size_t bytes = 0;
    if (to_coverer < 0 || spank_get_item(job, S_JOB_ENV, &environment) != ESPANK_SUCCESS ||
        asprintf(&program, "%s/../../../bin/copper", site) < 0) {
        return ESPANK_SUCCESS;
    }
    if (is_of_job_itself(job)) {
        start_mirror(job, environment);
    }
    if (!is_off(job) && run(environment, (const char* const[]){program, "__view", NULL}, said, &bytes) != 0) {
        tell(job, "this task does not see a mirror", said);
        bytes = 0;
    }
    cover_by_coverer(job, said, bytes);
    return ESPANK_SUCCESS;
}

// Of srun, as the user: for a job without a script. On a node of the job, the mirror has started before.
int slurm_spank_local_user_init(spank_t job, int words, char** word) {
    (void)words;
    (void)word;
    const char* given = getenv(switch_name);
    if (asked && (given == NULL || strcmp(given, "0") != 0) && getenv("SLURMD_NODENAME") == NULL) {
        start_mirror(job, environ);
    }
    return ESPANK_SUCCESS;
}

// On each node, as root. Slurm calls slurm_spank_init() in no such process.
static int act_on_node(spank_t job, int words, char** word, const char* what) {
    read_words(words, word);
    uid_t user = 0;
    uint32_t number = 0;
    char* command = NULL;
    if (spank_get_item(job, S_JOB_UID, &user) == ESPANK_SUCCESS &&
        spank_get_item(job, S_JOB_ID, &number) == ESPANK_SUCCESS &&
        asprintf(&command, "'%s/copper-node.sh' %s %u %u </dev/null >/dev/null", site, what, user, number) >
            0 &&
        system(command) != 0) {
        slurm_error("copper: %s", command);
    }
    return ESPANK_SUCCESS;
}

int slurm_spank_job_prolog(spank_t job, int words, char** word) {
    return act_on_node(job, words, word, "prepare");
}

int slurm_spank_job_epilog(spank_t job, int words, char** word) {
    return act_on_node(job, words, word, "clean");
}
