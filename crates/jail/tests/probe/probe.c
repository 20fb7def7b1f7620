/*
 * Run in the jail, and only there, instead of a guest kernel: tries what a hostile kernel would, and prints for each attempt
 * `name: refused: <errno>` or `name: DONE`. Only the second is a hole in the jail.
 *
 * probe attempts <host pid> <sibling pid>   every attempt below
 * probe forks                               forks until refused, prints how often it could, then waits
 * probe memory                              takes memory until killed
 * probe wait                                waits
 *
 * Descriptors: 3 read-only image, 4 writable disk, 5 memory, 6 listening socket.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { IMAGE = 3, DISK = 4, MEMORY = 5, LISTENER = 6 };

extern char **environ;

static void say(const char *name, long result)
{
	if (result == -1)
		dprintf(1, "%s: refused: %s\n", name, strerror(errno));
	else
		dprintf(1, "%s: DONE\n", name);
}

#define TRY(name, call) do { errno = 0; say(name, (long)(call)); } while (0)

static long host_files(void)
{
	TRY("open /etc/passwd", open("/etc/passwd", O_RDONLY));
	TRY("raw open /etc/passwd", syscall(SYS_open, "/etc/passwd", O_RDONLY));
	TRY("open the root directory", open("/", O_RDONLY | O_DIRECTORY));
	TRY("open by path only", open("/", O_PATH));
	TRY("create a file", open("/file", O_CREAT | O_RDWR, 0600));
	TRY("create a directory", mkdir("/directory", 0700));
	TRY("stat a host file", syscall(SYS_newfstatat, AT_FDCWD, "/etc", &(struct stat){0}, 0));
	TRY("statx a host file", syscall(SYS_statx, AT_FDCWD, "/etc", 0, 0x7ff, (char[256]){0}));
	TRY("list the root", syscall(SYS_getdents64, 0, (char[256]){0}, 256));
	TRY("leave by dot dot", chdir("../../../.."));
	TRY("chroot", chroot("/"));
	TRY("read /proc", open("/proc/self/status", O_RDONLY));
	TRY("read /sys", open("/sys/kernel/vmcoreinfo", O_RDONLY));
	TRY("open a device", open("/dev/null", O_RDWR));
	TRY("make a device", mknod("/disk", S_IFBLK | 0600, 0xfe00));
	TRY("open by handle", syscall(SYS_open_by_handle_at, IMAGE, (char[16]){0}, 0));
	TRY("follow a link", readlink("/proc/self/exe", (char[64]){0}, 64));
	return 0;
}

static void processes(pid_t host, pid_t sibling)
{
	struct iovec vector = { (char[8]){0}, 8 };

	TRY("signal the host", kill(host, 0));
	TRY("kill the sibling", kill(sibling, SIGKILL));
	TRY("kill everyone else", kill(-1, SIGKILL));
	TRY("trace the sibling", ptrace(PTRACE_ATTACH, sibling, 0, 0));
	TRY("be traced", ptrace(PTRACE_TRACEME, 0, 0, 0));
	TRY("read the sibling's memory", process_vm_readv(sibling, &vector, 1, &vector, 1, 0));
	TRY("write the sibling's memory", process_vm_writev(sibling, &vector, 1, &vector, 1, 0));
	TRY("hold the sibling", syscall(SYS_pidfd_open, sibling, 0));
	TRY("hold the host", syscall(SYS_pidfd_open, host, 0));
	TRY("compare with the sibling", syscall(SYS_kcmp, getpid(), sibling, 0, 0, 0));
	TRY("change the sibling's limits", syscall(SYS_prlimit64, sibling, RLIMIT_NOFILE, &(struct rlimit){1, 1}, NULL));
	TRY("change the sibling's priority", setpriority(PRIO_PROCESS, sibling, 19));
}

static void namespaces(void)
{
	TRY("mount", mount("none", "/", "tmpfs", 0, NULL));
	TRY("remount writable", mount("none", "/", NULL, MS_REMOUNT, NULL));
	TRY("unmount", umount2("/", MNT_DETACH));
	TRY("new mount api", syscall(SYS_fsopen, "tmpfs", 0));
	TRY("clone a mount", syscall(SYS_open_tree, AT_FDCWD, "/", 1));
	TRY("new user namespace", unshare(CLONE_NEWUSER));
	TRY("new mount namespace", unshare(CLONE_NEWNS));
	TRY("new net namespace", unshare(CLONE_NEWNET));
	TRY("clone into a user namespace", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
	TRY("clone into a net namespace", syscall(SYS_clone, CLONE_NEWNET | SIGCHLD, 0, 0, 0, 0));
	TRY("clone3", syscall(SYS_clone3, (char[88]){0}, 88));
	TRY("enter a namespace", syscall(SYS_setns, IMAGE, 0));
	TRY("host name", sethostname("host", 4));
}

static void network(void)
{
	TRY("internet socket", socket(AF_INET, SOCK_STREAM, 0));
	TRY("internet 6 socket", socket(AF_INET6, SOCK_DGRAM, 0));
	TRY("raw socket", socket(AF_INET, SOCK_RAW, 1));
	TRY("packet socket", socket(AF_PACKET, SOCK_RAW, 0));
	TRY("netlink socket", socket(AF_NETLINK, SOCK_RAW, 0));
	TRY("unix socket", socket(AF_UNIX, SOCK_STREAM, 0));
	TRY("vsock socket", socket(AF_VSOCK, SOCK_STREAM, 0));
	TRY("algorithm socket", socket(AF_ALG, SOCK_SEQPACKET, 0));
	TRY("internet socket pair", socketpair(AF_INET, SOCK_STREAM, 0, (int[2]){0}));
	TRY("connect the listener", connect(LISTENER, (struct sockaddr *)"\1\0\0hutch", 8));
	TRY("bind the listener again", bind(LISTENER, (struct sockaddr *)"\1\0\0hutch", 8));
}

static void image(void)
{
	char byte = 'x';
	struct iovec vector = { &byte, 1 };

	TRY("write the image", write(IMAGE, &byte, 1));
	TRY("write the image at a place", pwritev(IMAGE, &vector, 1, 0));
	TRY("map the image writable",
	    mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, IMAGE, 0) == MAP_FAILED ? -1 : 0);
	TRY("map the image, then make it writable", ({
		void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, IMAGE, 0);
		at == MAP_FAILED ? -1 : mprotect(at, 4096, PROT_READ | PROT_WRITE);
	}));
	TRY("truncate the image", ftruncate(IMAGE, 0));
	TRY("punch the image", fallocate(IMAGE, 3, 0, 4096));
	TRY("open the image again", open("/proc/self/fd/3", O_RDWR));
	TRY("change the image's mode", fchmod(IMAGE, 0777));
	TRY("change the image's owner", fchown(IMAGE, getuid(), getgid()));
	TRY("label the image", syscall(SYS_fsetxattr, IMAGE, "user.a", "b", 1, 0));
	TRY("clone into the image", ioctl(IMAGE, FICLONE, DISK));
	TRY("freeze the file system", ioctl(IMAGE, FIFREEZE, 0));
	TRY("link the image", linkat(IMAGE, "", AT_FDCWD, "/image", AT_EMPTY_PATH));
	TRY("lease the image", fcntl(IMAGE, F_SETLEASE, F_RDLCK));
	TRY("execute the image", syscall(SYS_execveat, IMAGE, "", NULL, NULL, AT_EMPTY_PATH));
	TRY("execute the disk", syscall(SYS_execveat, DISK, "", NULL, NULL, AT_EMPTY_PATH));
	TRY("execute by name", syscall(SYS_execve, "/bin/sh", NULL, NULL));
	TRY("execute by name and directory", syscall(SYS_execveat, AT_FDCWD, "/bin/sh", NULL, NULL, 0));
	TRY("grow the disk by writing", pwritev(DISK, &vector, 1, 1LL << 30));
	TRY("grow the disk by truncating", ftruncate(DISK, (1LL << 30) + 1));
	TRY("grow the disk by allocating", syscall(SYS_fallocate, DISK, 0, 0, (1LL << 30) + 1));
}

static void privileges(void)
{
	struct { unsigned version; int pid; } header = { 0x20080522, 0 };
	unsigned all[6] = { ~0U, ~0U, ~0U, ~0U, ~0U, ~0U };
	unsigned char allow[] = { 6, 0, 0, 0, 0, 0, 0xff, 0x7f };
	struct { unsigned short length; void *program; } filter = { 1, allow };

	TRY("become root", syscall(SYS_setuid, 0));
	TRY("become root three ways", syscall(SYS_setresuid, 0, 0, 0));
	TRY("become root's group", syscall(SYS_setresgid, 0, 0, 0));
	TRY("join groups", syscall(SYS_setgroups, 1, (gid_t[1]){0}));
	TRY("take capabilities", syscall(SYS_capset, &header, all));
	TRY("loosen secure bits", prctl(PR_SET_SECUREBITS, 0));
	TRY("raise ambient", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 0, 0, 0));
	TRY("allow any tracer", prctl(PR_SET_PTRACER, -1));
	TRY("become a reaper", prctl(PR_SET_CHILD_SUBREAPER, 1));
	TRY("old seccomp call", prctl(PR_SET_SECCOMP, 2, &filter));
	TRY("raise a limit", setrlimit(RLIMIT_NOFILE, &(struct rlimit){1 << 20, 1 << 20}));
	TRY("real time", sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){1}));
	TRY("priority", setpriority(PRIO_PROCESS, 0, -20));
	TRY("lock memory", mlockall(MCL_CURRENT));
	TRY("huge pages", mmap(NULL, 2 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) == MAP_FAILED ? -1 : 0);
	TRY("huge memory file", memfd_create("huge", MFD_HUGETLB));
}

static int a_page;

static void kernel_surface(void)
{
	TRY("keyring", syscall(SYS_keyctl, 0, -3, 1));
	TRY("add a key", syscall(SYS_add_key, "user", "a", "b", 1, -3));
	TRY("bpf", syscall(SYS_bpf, 0, (char[128]){0}, 128));
	TRY("perf", syscall(SYS_perf_event_open, (char[128]){0}, 0, -1, -1, 0));
	TRY("userfaultfd", syscall(SYS_userfaultfd, 1));
	TRY("futex with priorities", syscall(SYS_futex, (int[1]){0}, 6, 0, NULL, NULL, 0));
	TRY("futex queues", syscall(SYS_futex, (int[2]){0}, 12, 1, 1, (int[1]){0}, 0));
	TRY("futexes at once", syscall(449, NULL, 0, 0, NULL, 0));
	TRY("merge memory", madvise((void *)((unsigned long)&a_page & ~4095UL), 4096, MADV_MERGEABLE));
	TRY("io_uring", syscall(SYS_io_uring_setup, 8, (char[128]){0}));
	TRY("asynchronous io", syscall(SYS_io_setup, 1, (long[1]){0}));
	TRY("module", syscall(SYS_init_module, "", 0, ""));
	TRY("kexec", syscall(SYS_kexec_load, 0, 0, 0, 0));
	TRY("reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0, 0));
	TRY("kernel log", syscall(SYS_syslog, 3, (char[64]){0}, 64));
	TRY("ports", syscall(SYS_iopl, 3));
	TRY("local descriptor table", syscall(SYS_modify_ldt, 0, (char[64]){0}, 64));
	TRY("set the clock", syscall(SYS_clock_settime, 0, (long[2]){0, 0}));
	TRY("adjust the clock", syscall(SYS_adjtimex, (char[256]){1}));
	TRY("swap", syscall(SYS_swapoff, "/swap"));
	TRY("accounting", syscall(SYS_acct, NULL));
	TRY("quota", syscall(SYS_quotactl, 0, NULL, 0, NULL));
	TRY("file notification", syscall(SYS_fanotify_init, 0, 0));
	TRY("inotify", syscall(SYS_inotify_init1, 0));
	TRY("secret memory", syscall(SYS_memfd_secret, 0));
	TRY("shared memory segment", syscall(SYS_shmget, 0, 4096, 0666 | 01000));
	TRY("message queue", syscall(SYS_msgget, 0, 0666 | 01000));
	TRY("posix message queue", syscall(SYS_mq_open, "a", O_CREAT | O_RDWR, 0600, NULL));
	TRY("landlock", syscall(SYS_landlock_create_ruleset, NULL, 0, 1));
	TRY("move pages", syscall(SYS_move_pages, 0, 0, NULL, NULL, NULL, 0));
	TRY("randomize again", syscall(SYS_personality, 0));
	TRY("x32 call", syscall(0x40000000 | SYS_getpid));
	TRY("32-bit call", ({
		long result = 20; /* getpid of i386 */
		__asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
		errno = -result;
		result < 0 ? -1 : 0;
	}));
}

static void inventory(void)
{
	for (int fd = 0; fd < 4096; fd++)
		if (fcntl(fd, F_GETFD) != -1)
			dprintf(1, "descriptor %d\n", fd);
	for (char **variable = environ; *variable; variable++)
		dprintf(1, "variable %s\n", *variable);
}

static void wait_for_ever(void)
{
	for (;;)
		poll(NULL, 0, -1); /* pause is not on the list */
}

static void forks(void)
{
	int count = 0;

	for (; count < 100000; count++) {
		pid_t child = fork();
		if (child == 0)
			wait_for_ever();
		if (child < 0)
			break;
	}
	dprintf(1, "forked %d\n", count);
}

static void memory(void)
{
	for (size_t taken = 0;; taken += 1 << 20) {
		char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (at == MAP_FAILED)
			break;
		memset(at, 1, 1 << 20);
	}
	dprintf(1, "memory: refused: %s\n", strerror(errno));
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "wait";

	/* What is harmless in the jail would end the host: not one attempt outside of it. */
	if (getpid() != 1 || getuid() == 0 || access("/", R_OK) == 0) {
		dprintf(2, "probe: this is no jail, nothing was tried\n");
		return 2;
	}
	signal(SIGXFSZ, SIG_IGN);
	if (!strcmp(mode, "attempts")) {
		inventory();
		host_files();
		processes(atoi(argv[2]), atoi(argv[3]));
		namespaces();
		network();
		image();
		privileges();
		kernel_surface();
		dprintf(1, "end\n");
		return 0;
	}
	if (!strcmp(mode, "forks"))
		forks();
	if (!strcmp(mode, "memory"))
		memory();
	dprintf(1, "waiting\n");
	wait_for_ever();
}
