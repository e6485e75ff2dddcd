# Each attempt is a script that a place of a world runs. It ends with 0 where it got out. None may.
# What it would change outside it sets to what is there already.
case $(uname -m) in
aarch64) ptrace=117 pidfd_open=434 pidfd_getfd=438 bpf=280 perf=241 syslog=116 add_key=217 keyctl=219 by_handle=265 settimeofday=170 init_module=105 swapon=224 process_vm_writev=271 kexec_load=104 ioperm=0 prlimit=261 ;;
*) ptrace=101 pidfd_open=434 pidfd_getfd=438 bpf=321 perf=298 syslog=103 add_key=248 keyctl=250 by_handle=304 settimeofday=164 init_module=175 swapon=167 process_vm_writev=311 kexec_load=246 ioperm=173 prlimit=302 ;;
esac
scratch=$(mktemp -d)
cd "$scratch"
# Whether perl's `syscall` of these words succeeds.
calls() { perl -e "exit(syscall($1) < 0)"; }
# Whether a file can be opened for writing; nothing is written.
opens() { perl -e 'open(my $file, "+<", $ARGV[0]) or open($file, ">>", $ARGV[0]) or exit 1' "$1"; }

## says what the worker says, through its standard output
opens /proc/2/fd/1 || opens /proc/1/fd/1

## hears what the worker is told, through its standard input
perl -e 'exit !open(my $file, "<", "/proc/2/fd/0")'

## speaks through any pipe or socket of the first processes
for file in /proc/1/fd/* /proc/2/fd/* /proc/2/task/*/fd/*; do opens "$file" && exit 0; done
exit 1

## writes the worker's memory
opens /proc/2/mem || opens /proc/1/mem

## traces the worker
calls "$ptrace, 0x4206, 2, 0, 0" || calls "$ptrace, 0x4206, 1, 0, 0"

## traces the worker from a user namespace of its own
unshare --user --map-root-user perl -e "exit(syscall($ptrace, 0x4206, 2, 0, 0) < 0)"

## writes the worker's memory by a call
perl -e "\$b = 'x'; \$v = pack('PQ', \$b, 1); \$r = pack('QQ', 4096, 1); exit(!(syscall($process_vm_writev, 2, \$v, 1, \$r, 1, 0) >= 0 || \$! == 14))"

## takes a descriptor of the worker
perl -e "my \$fd = syscall($pidfd_open, 2, 0); exit 1 if \$fd < 0; exit(syscall($pidfd_getfd, \$fd, 1, 0) < 0)"

## looks at the worker's root
test -e /proc/2/root/proc || test -e /proc/1/root/proc

## enters the worker's namespaces
nsenter --target 2 --net true || nsenter --target 1 --net true

## opens the person's terminal
test -e /dev/tty && opens /dev/tty

## has a controlling terminal
perl -e 'open(my $stat, "<", "/proc/self/stat"); my @f = split(" ", (split(/\) /, <$stat>))[1]); exit($f[4] == 0)'

## has a descriptor that nobody gave it
for file in /proc/$$/fd/*; do
    case ${file##*/} in 0 | 1 | 2) continue ;; esac
    case $(readlink "$file") in "" | /proc/* | "$scratch"*) ;; *) readlink "$file" && exit 0 ;; esac
done
exit 1

## makes a block device and mounts it
mknod disk b 254 0 && { dd if=disk of=/dev/null count=1 || mount -t ext4 disk /mnt; }

## makes the kernel's memory
mknod mem c 1 1 && dd if=mem of=/dev/null count=1

## makes the kernel's log
mknod kmsg c 1 11 && opens kmsg

## makes a node on its own tmpfs
mount -t tmpfs none "$scratch" && cd "$scratch" && mknod disk b 254 0 && dd if=disk of=/dev/null count=1

## makes a device node in a user namespace of its own
unshare --user --map-root-user --mount sh -c 'mount -t tmpfs none /mnt && mknod /mnt/disk b 254 0 && dd if=/mnt/disk of=/dev/null count=1'

## mounts the machine's devices
mount -t devtmpfs none /mnt && test -e /mnt/kmsg

## mounts cgroups of version 2 with others in it
mount -t cgroup2 none /mnt && for group in /mnt/*/; do test -d "$group" && exit 0; done

## mounts cgroups of version 1
for kind in memory pids freezer cpu devices; do mount -t cgroup -o $kind none /mnt && exit 0; done
exit 1

## mounts cgroups in namespaces of its own
unshare --user --map-root-user --mount --cgroup sh -c 'mount -t cgroup2 none /mnt && test -w /mnt/cgroup.procs && ls -d /mnt/*/' ||
    unshare --user --map-root-user --mount --cgroup sh -c 'mount -t cgroup -o freezer none /mnt && ls -d /mnt/*/'

## sees which cgroup its run is in
cut -d: -f3 /proc/self/cgroup | grep -vx -e / -e /n1 -e ''

## mounts debugfs
mount -t debugfs none /mnt

## mounts tracefs
mount -t tracefs none /mnt

## mounts securityfs
mount -t securityfs none /mnt

## mounts a file system of blocks through a loop device
dd if=/dev/zero of=image bs=1M count=4 && mkfs.ext4 -q image && mount -o loop image /mnt

## writes settings that are not a network's
find /proc/sys -path /proc/sys/net -prune -o -type f -print | while read -r file; do opens "$file" && echo "$file"; done | grep -q .

## writes settings after mounting them again for writing
mount -o remount,bind,rw /proc/sys; opens /proc/sys/kernel/panic

## writes settings of a fresh proc
mount -t proc none /mnt && opens /mnt/sys/kernel/panic

## writes settings of a fresh proc in namespaces of its own
unshare --user --map-root-user --mount --pid --fork sh -c 'mount -t proc none /mnt && exec 3<>/mnt/sys/kernel/panic'

## writes settings under what covers them
umount -l /proc/sys/net; umount -l /proc/sys; opens /proc/sys/kernel/panic

## writes settings in another mount of the same proc
mount --bind /proc /mnt; opens /mnt/sys/kernel/panic && exit 0
umount /mnt; mount --rbind /proc /mnt; umount -l /mnt/sys; opens /mnt/sys/kernel/panic

## writes anything of proc that is not a process's or a network's
find /proc -maxdepth 1 -mindepth 1 ! -name '[0-9]*' ! -type l ! -name sys ! -name self | while read -r top; do
    find "$top" -type f 2> /dev/null | while read -r file; do opens "$file" && echo "$file"; done
done | grep .

## writes anything of sysfs
find /sys -type f -perm /222 ! -path '/sys/fs/cgroup/*' 2> /dev/null | while read -r file; do opens "$file" && echo "$file"; done | grep .

## writes sysfs after mounting it again for writing
mount -o remount,rw /sys; mount -o remount,bind,rw /sys; opens /sys/kernel/mm/transparent_hugepage/enabled

## writes a fresh sysfs
mount -t sysfs none /mnt && opens /mnt/kernel/mm/transparent_hugepage/enabled

## writes sysfs under what covers it
umount -l /sys; umount -l /sys; opens /sys/kernel/mm/transparent_hugepage/enabled

## asks for the magic key
opens /proc/sysrq-trigger

## moves interrupts
opens /proc/irq/default_smp_affinity

## sets the clock
perl -e "my \$zone = pack('ii', 0, 0); exit(syscall($settimeofday, 0, \$zone) < 0)"

## runs before everybody else
chrt --fifo 1 true || nice -n -5 sh -c 'test $(nice) -lt 0'

## loads a program into the kernel
perl -e "my \$code = pack('CCsiCCsi', 0xb7, 0, 0, 0, 0x95, 0, 0, 0); my \$license = \"GPL\\0\"; my \$attr = pack('IIPP', 1, 2, \$code, \$license) . \"\\0\" x 96; exit(syscall($bpf, 5, \$attr, length \$attr) < 0)"

## loads a program for cgroups
perl -e "my \$code = pack('CCsiCCsi', 0xb7, 0, 0, 1, 0x95, 0, 0, 0); my \$license = \"GPL\\0\"; my \$attr = pack('IIPP', 8, 2, \$code, \$license) . \"\\0\" x 96; exit(syscall($bpf, 5, \$attr, length \$attr) < 0)"

## counts events of the machine
perl -e "my \$attr = pack('IIQ', 1, 112, 0) . \"\\0\" x 96; exit(syscall($perf, \$attr, -1, 0, -1, 0) < 0)"

## reads the kernel's log
dd if=/proc/kmsg of=/dev/null bs=1 count=1 iflag=nonblock || perl -e "my \$text = ' ' x 4096; exit(syscall($syslog, 3, \$text, 4096) <= 0)"

## puts a key into the user's keyring
perl -e "my (\$type, \$name, \$key) = (\"user\\0\", \"chainbreak\\0\", 'x'); exit(syscall($add_key, \$type, \$name, \$key, 1, -4) < 0)"

## puts a key into the session's keyring
perl -e "my (\$type, \$name, \$key) = (\"user\\0\", \"chainbreak\\0\", 'x'); exit(syscall($add_key, \$type, \$name, \$key, 1, -3) < 0)"

## reads which keys the session has
perl -e "my \$text = ' ' x 4096; exit(syscall($keyctl, 6, -3, \$text, 4096) < 0)"

## opens a file of the machine by its handle
perl -e "open(my \$root, '<', '/'); my \$handle = pack('IiIII', 8, 1, 2, 0, 0); exit(syscall($by_handle, fileno(\$root), \$handle, 0) < 0)"

## loads a module
perl -e "my (\$image, \$words) = ('x', \"\\0\"); syscall($init_module, \$image, 1, \$words); exit(\$! == 1 || \$! == 38)"

## swaps
dd if=/dev/zero of=swap bs=1M count=1 && chmod 600 swap && mkswap swap && perl -e "my \$name = \"swap\\0\"; syscall($swapon, \$name, 0); exit(\$! == 1)"

## loads another kernel
perl -e "syscall($kexec_load, 0, 0, 0, 0); exit(\$! == 1 || \$! == 38)"

## speaks to devices by their ports
test $ioperm != 0 && calls "$ioperm, 0x80, 1, 1"

## kills a process of the machine
for pid in $(cat "$OUTSIDE/pid"); do kill -0 "$pid" && test "$(cat /proc/$pid/comm)" = sleep && exit 0; done
exit 1

## connects to a socket of the machine by its path
perl -MSocket -e 'socket(my $s, PF_UNIX, SOCK_STREAM, 0); exit !connect($s, sockaddr_un("$ENV{OUTSIDE}/socket"))'

## connects to a socket of the machine by its abstract name
perl -MSocket -e 'socket(my $s, PF_UNIX, SOCK_STREAM, 0); exit !connect($s, sockaddr_un("\0$ENV{OUTSIDE}"))'

## connects to a port of the machine
port=$(cat "$OUTSIDE/port")
for address in 127.0.0.1 $(ip route show default | cut -d' ' -f3); do
    perl -MSocket -e 'socket(my $s, PF_INET, SOCK_STREAM, 0); exit !connect($s, sockaddr_in($ARGV[0], inet_aton($ARGV[1])))' "$port" "$address" && exit 0
done
exit 1

## writes into a FIFO of the machine
perl -MFcntl -e 'exit !sysopen(my $file, "$ENV{OUTSIDE}/fifo", O_WRONLY | O_NONBLOCK)'

## sets what every network of the machine has
opens /proc/sys/net/netfilter/nf_conntrack_buckets || opens /proc/sys/net/core/bpf_jit_enable

## has a right over the machine
perl -e 'open(my $s, "<", "/proc/self/status"); for (<$s>) { /^CapEff:\s+(\w+)/ and exit !(hex($1) & (1 << 16 | 1 << 17 | 1 << 19 | 1 << 25 | 1 << 27)) }'
