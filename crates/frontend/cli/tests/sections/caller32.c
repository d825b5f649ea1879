/*
 * A 32-bit program that calls the mount's ioctls. It has no C library, so that none for 32 bits
 * is needed. Arguments: a file and a directory of the mount. Its exit status is the number of the
 * step that went wrong, 0 if none did.
 */

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;

enum { EXIT = 1, OPEN = 5, IOCTL = 54, PREAD64 = 180, PWRITE64 = 181 };
enum { RDWR_LARGE = 0100002, DIRECTORY_LARGE = 0300000 };
enum { START = 0xf501, COMMIT = 0xf502, ABORT = 0xf505 };
enum { EINVAL = 22, ENOTTY = 25 };

static int call(int number, u32 a, u32 b, u32 c, u32 d, u32 e)
{
	int result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
			 : "memory");
	return result;
}

static int ioctl(int fd, u32 command, void *argument)
{
	return call(IOCTL, fd, command, (u32)argument, 0, 0);
}

static int same(const u8 *bytes, u8 byte, u32 len)
{
	while (len--)
		if (bytes[len] != byte)
			return 0;
	return 1;
}

static int section(int fd)
{
	static u8 page[4096];
	u32 features[2] = { 0, 77 }, i;

	if (ioctl(fd, 0x8004f50c, features) || features[0] != 4 || features[1] != 77)
		return 10;
	if (ioctl(fd, COMMIT, 0) != -EINVAL)
		return 11;
	for (i = 0; i < sizeof(page); i++)
		page[i] = 5;
	if (ioctl(fd, START, 0) || call(PWRITE64, fd, (u32)page, 4096, 0, 0) != 4096)
		return 12;
	if (ioctl(fd, COMMIT, 0))
		return 13;
	page[0] = 6;
	if (ioctl(fd, START, 0) || call(PWRITE64, fd, (u32)page, 4096, 0, 0) != 4096)
		return 14;
	if (ioctl(fd, ABORT, 0) || call(PREAD64, fd, (u32)page, 4096, 0, 0) != 4096)
		return 15;
	return same(page, 5, 4096) ? 0 : 16;
}

static int tickets(int fd)
{
	u64 ticket = 0, argument[3], polled[2];

	if (ioctl(fd, 0x8008e501, &ticket) || !ticket)
		return 20;
	argument[0] = ticket;
	argument[1] = ~0ull;
	if (ioctl(fd, 0x4010e503, argument))
		return 21;
	polled[0] = ticket;
	polled[1] = 77;
	if (ioctl(fd, 0xc008e502, polled) || polled[0] != 1 || polled[1] != 77)
		return 22;
	if (ioctl(fd, 0x8008e504, &ticket))
		return 23;
	/* The sizes that a program would make whose numbers have 32 bits. */
	if (ioctl(fd, 0x8004e501, &ticket) != -ENOTTY || ioctl(fd, 0x4008e503, argument) != -ENOTTY)
		return 24;
	argument[0] = ticket + 1000;
	return ioctl(fd, 0x4010e503, argument) == -EINVAL ? 0 : 25;
}

/* One entry, durable: "old" becomes "new". */
static int publish(int fd)
{
	static u8 argument[] = { 1, 0, 0, 0, 2, 0, 0, 0, 0,   0,   3,   0,
				 3, 0, 'o', 'l', 'd', 'n', 'e', 'w' };

	if (ioctl(fd, 0x4000e510 | (sizeof(argument) - 1) << 16, argument) != -EINVAL)
		return 30;
	return ioctl(fd, 0x4000e510 | sizeof(argument) << 16, argument) ? 31 : 0;
}

/* One step, durable: "made" is created, and its number comes back. */
static int compound(int fd)
{
	static u8 __attribute__((aligned(4))) buffer[48] = {
		32, 0, 0, 0, 1, 0, 0, 0, 2,   0,   0,	 0,   0,    0, 0, 0,
		3,  0, 1, 0, 4, 0, 0, 0, 'm', 'a', 'd', 'e', 0x80, 1, 0, 0,
	};
	const u32 *answer = (const u32 *)buffer;

	if (ioctl(fd, 0xc000e520 | 31 << 16, buffer) != -EINVAL)
		return 40;
	if (ioctl(fd, 0xc000e520 | sizeof(buffer) << 16, buffer))
		return 41;
	return !answer[0] && !answer[1] && answer[2] == 8 && answer[3] ? 0 : 42;
}

__attribute__((used)) static int run(u32 *stack)
{
	int file = call(OPEN, stack[2], RDWR_LARGE, 0, 0, 0);
	int dir = call(OPEN, stack[3], DIRECTORY_LARGE, 0, 0, 0);
	int failed;

	if (stack[0] != 3 || file < 0 || dir < 0)
		return 1;
	failed = section(file);
	if (!failed)
		failed = tickets(file);
	if (!failed)
		failed = publish(dir);
	return failed ? failed : compound(dir);
}

__attribute__((used)) static void end(int status)
{
	for (;;)
		call(EXIT, status, 0, 0, 0, 0);
}

__asm__(".globl _start\n_start:\n\tmov %esp, %eax\n\tand $-16, %esp\n\tsub $12, %esp\n\tpush %eax\n"
	"\tcall run\n\tsub $12, %esp\n\tpush %eax\n\tcall end\n");
