/*
 * What a program feels in a sandbox: `probe MEASURE [...]` takes one measure and prints one number, in the unit that
 * measures.rs has for it. It is compiled inside of each place, by the compiler of the image.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define MIB (1UL << 20)

static char block[1 << 16];

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void must(int fine, const char *what)
{
	if (!fine) {
		perror(what);
		exit(1);
	}
}

static void await(pid_t child)
{
	int status;

	must(child > 0 && waitpid(child, &status, 0) == child, "wait");
	if (status) {
		fprintf(stderr, "a child ended with status %d\n", status);
		exit(1);
	}
}

/* Each page of fresh memory is written to, in order. */
static double page_fault(void)
{
	unsigned long pages = 8192;
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	double began = now();

	must(memory != MAP_FAILED, "mmap");
	for (unsigned long page = 0; page < pages; page++)
		memory[page * PAGE] = 1;
	return (now() - began) / pages;
}

/* Pages far from each other, in no order: nothing that looks ahead can help. */
static double page_fault_random(void)
{
	unsigned long pages = 1 << 16, touched = 2000, at = 1;
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	double began = now();

	must(memory != MAP_FAILED, "mmap");
	for (unsigned long n = 0; n < touched; n++) {
		at = (at * 1103515245 + 12345) & 0x7fffffff;
		memory[(at >> 8) % pages * PAGE] = 1;
	}
	return (now() - began) / touched;
}

/* A child writes to each page that it shares with its parent. */
static double page_fault_copy(void)
{
	unsigned long pages = 2048;
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	double *result = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child;

	must(memory != MAP_FAILED && result != MAP_FAILED, "mmap");
	memset(memory, 1, pages * PAGE);
	*result = 0;
	child = fork();
	if (!child) {
		double began = now();

		for (unsigned long page = 0; page < pages; page++)
			memory[page * PAGE] = 2;
		*result = (now() - began) / pages;
		_exit(0);
	}
	await(child);
	return *result;
}

static double fork_wait(void)
{
	int times = 100;
	double began = now();

	for (int n = 0; n < times; n++) {
		pid_t child = fork();

		if (!child)
			_exit(0);
		await(child);
	}
	return (now() - began) / times;
}

static double fork_exec(void)
{
	int times = 50;
	double began = now();

	for (int n = 0; n < times; n++) {
		pid_t child = fork();

		if (!child) {
			execl("/bin/true", "true", NULL);
			_exit(127);
		}
		await(child);
	}
	return (now() - began) / times;
}

static double file_create(void)
{
	int files = 500;
	char name[64];
	double took;
	double began;

	must(mkdir("many", 0700) == 0, "mkdir");
	began = now();
	for (int n = 0; n < files; n++) {
		int fd;

		snprintf(name, sizeof(name), "many/%d", n);
		fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
		must(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0, "create");
	}
	took = (now() - began) / files;
	for (int n = 0; n < files; n++) {
		snprintf(name, sizeof(name), "many/%d", n);
		must(unlink(name) == 0, "unlink");
	}
	must(rmdir("many") == 0, "rmdir");
	return took;
}

static double file_write(void)
{
	int fd = open("large", O_CREAT | O_TRUNC | O_WRONLY, 0600);
	double began = now();

	must(fd >= 0, "create");
	for (unsigned long n = 0; n < 64 * MIB / sizeof(block); n++)
		must(write(fd, block, sizeof(block)) == sizeof(block), "write");
	return 64 / ((now() - began) / 1e6);
}

/* From the page cache: the file that file_write left, read once before. */
static double file_read(void)
{
	int fd = open("large", O_RDONLY);
	double began = 0;

	must(fd >= 0, "open");
	for (int round = 0; round < 2; round++) {
		began = now();
		must(lseek(fd, 0, SEEK_SET) == 0, "seek");
		for (unsigned long n = 0; n < 64 * MIB / sizeof(block); n++)
			must(read(fd, block, sizeof(block)) == sizeof(block), "read");
	}
	return 64 / ((now() - began) / 1e6);
}

static double loopback(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), socket_fd;
	unsigned long came = 0;
	double began;
	pid_t child;

	must(listener >= 0 && bind(listener, (void *)&address, length) == 0 && listen(listener, 1) == 0 &&
		     getsockname(listener, (void *)&address, &length) == 0, "listen");
	child = fork();
	if (!child) {
		socket_fd = socket(AF_INET, SOCK_STREAM, 0);
		must(connect(socket_fd, (void *)&address, length) == 0, "connect");
		for (unsigned long n = 0; n < 256 * MIB / sizeof(block); n++)
			for (unsigned long sent = 0; sent < sizeof(block);) {
				ssize_t count = write(socket_fd, block + sent, sizeof(block) - sent);

				must(count > 0, "send");
				sent += count;
			}
		_exit(0);
	}
	socket_fd = accept(listener, NULL, NULL);
	must(socket_fd >= 0, "accept");
	began = now();
	for (;;) {
		ssize_t count = read(socket_fd, block, sizeof(block));

		must(count >= 0, "receive");
		if (!count)
			break;
		came += count;
	}
	double seconds = (now() - began) / 1e6;

	await(child);
	return (double)came / MIB / seconds;
}

static double system_call(void)
{
	int times = 10000;
	double began = now();

	for (int n = 0; n < times; n++)
		syscall(SYS_getppid);
	return (now() - began) / times;
}

static double read_clock(void)
{
	int times = 5000;
	double began = now();

	for (int n = 0; n < times; n++)
		now();
	return (now() - began) / times;
}

/* How long a command takes, in milliseconds. What it prints is of no interest. */
static double command(char **arguments)
{
	extern char **environ;
	posix_spawn_file_actions_t actions;
	double began = now();
	pid_t child;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	must(posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ) == 0, "spawn");
	await(child);
	return (now() - began) / 1e3;
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		double (*take)(void);
	} measures[] = {
		{ "page-fault", page_fault },	{ "page-fault-random", page_fault_random },
		{ "page-fault-copy", page_fault_copy }, { "fork", fork_wait },
		{ "fork-exec", fork_exec },	{ "file-create", file_create },
		{ "file-write", file_write },	{ "file-read", file_read },
		{ "loopback", loopback },	{ "system-call", system_call },
		{ "clock", read_clock },
	};

	memset(block, 7, sizeof(block));
	if (count > 2 && !strcmp(arguments[1], "command")) {
		printf("%.4f\n", command(arguments + 2));
		return 0;
	}
	for (unsigned int n = 0; count == 2 && n < sizeof(measures) / sizeof(measures[0]); n++)
		if (!strcmp(arguments[1], measures[n].name)) {
			printf("%.4f\n", measures[n].take());
			return 0;
		}
	fprintf(stderr, "usage: probe MEASURE, or probe command PROGRAM [ARGUMENT...]\n");
	return 2;
}
