# `world`: what a world may do with eBPF, a line for each, with `ok` or what the kernel says; what it has attached stays.
# `kernel`: a program that reads the kernel's memory. `left`: the names of all programs of the machine. `hold NAME`: loads one of that name, and keeps it until its standard input ends.
use strict;
my ($bpf) = `uname -m` =~ /aarch64/ ? 280 : 321;
my $name = $ARGV[1] // 'cb_world';

sub call {
    my ($command, $attributes) = @_;
    $attributes .= "\0" x (160 - length $attributes);
    return syscall($bpf, $command, $attributes, 160);
}

sub tried { my ($what, $result) = @_; print "$what: ", $result < 0 ? "$!" : 'ok', "\n"; return $result }

sub code { return join '', map { pack 'CCsi', @$_ } @_ }
# Lets everything pass.
my @pass = ([0xb7, 0, 0, 1], [0x95, 0, 0, 0]);
# bpf_probe_read_kernel(stack, 8, 0)
my @reads = ([0xbf, 0xa1, 0, 0], [0x07, 1, 0, -8], [0xb7, 2, 0, 8], [0xb7, 3, 0, 0], [0x85, 0, 0, 113], @pass);
my $license = "GPL\0";

sub program {
    my ($type, $attach, @code) = @_;
    @code = @pass unless @code;
    my $code = code(@code);
    my $attributes = pack('LLPPLLQLLa16LL', $type, scalar @code, $code, $license, 0, 0, 0, 0, 0, $name, 0, $attach);
    return call(5, $attributes);
}

sub info {
    my ($id) = @_;
    my $fd = call(13, pack('L', $id));
    my $info = "\0" x 232;
    call(15, pack('LLP', $fd, 232, $info)) if $fd >= 0;
    return unpack('Z16', substr $info, 64);
}

if ($ARGV[0] eq 'hold') {
    $| = 1;
    tried('held', program(3, 0));
    <STDIN>;
    exit;
}
if ($ARGV[0] eq 'kernel') {
    tried('that reads the kernel\'s memory', program(3, 0, @reads));
    exit;
}
if ($ARGV[0] eq 'left') {
    my $attributes = pack('L', 0) . "\0" x 156;
    while (syscall($bpf, 11, $attributes, 160) >= 0) {
        my $id = unpack 'x4L', $attributes;
        print info($id), "\n";
        substr($attributes, 0, 4) = pack 'L', $id;
    }
    exit;
}
opendir(my $root, '/sys/fs/bpf') or die "/sys/fs/bpf: $!";
tried('a token', call(36, pack('LL', 0, fileno $root)));
tried('of tc', program(3, 0));
my $map = tried('a map', call(0, pack('LLLL', 1, 4, 8, 4)));
tried('a map of maps', call(0, pack('LLLLLL', 13, 4, 4, 4, 0, $map)));
tried('that uses a map', program(3, 0, [0x18, 0x11, 0, $map], [0, 0, 0, 0], @pass));
tried('that uses no map', program(3, 0, [0x18, 0x11, 0, 99], [0, 0, 0, 0], @pass));
tried('that reads the kernel\'s memory', program(3, 0, @reads));
my $connect = tried('of cgroups', program(18, 10));
opendir(my $group, '/sys/fs/cgroup') or die "/sys/fs/cgroup: $!";
tried('attached to the cgroup of the node', call(8, pack('LLL', fileno $group, $connect, 10)));
tried('that traces', program(2, 0));
tried('of perf events', program(7, 0));
tried('of devices', program(15, 6));
tried('that are the machine\'s', call(11, pack 'L', 0));
