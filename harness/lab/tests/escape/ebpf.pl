# `world`: what a world may do with a BPF token, a line for each, with `ok` or what the kernel says; what it has attached stays.
# `left`: the names of all programs of the machine. `hold NAME`: loads one of that name, and keeps it until its standard input ends.
use strict;
my ($bpf) = `uname -m` =~ /aarch64/ ? 280 : 321;
my $token;
my $name = $ARGV[1] // 'cb_world';

sub call {
    my ($command, $attributes) = @_;
    $attributes .= "\0" x (160 - length $attributes);
    return syscall($bpf, $command, $attributes, 160);
}

sub tried { my ($what, $result) = @_; print "$what: ", $result < 0 ? "$!" : 'ok', "\n"; return $result }

# Lets everything pass.
my $code = pack('CCsiCCsi', 0xb7, 0, 0, 1, 0x95, 0, 0, 0);
my $license = "GPL\0";

sub program {
    my ($type, $attach, $with) = @_;
    my $attributes = pack('LLPPLLQLLa16LL', $type, 2, $code, $license, 0, 0, 0, 0, $with ? 1 << 16 : 0, $name, 0, $attach);
    $attributes .= "\0" x (144 - length $attributes) . pack('l', $token) if $with;
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
    tried('held', program(3, 0, 0));
    <STDIN>;
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
$token = tried('token', call(36, pack('LL', 0, fileno $root)));
tried('of tc, by the token', program(3, 0, 1));
tried('of tc, without it', program(3, 0, 0));
my $connect = tried('of cgroups, by the token', program(18, 10, 1));
opendir(my $group, '/sys/fs/cgroup') or die "/sys/fs/cgroup: $!";
tried('attached to the cgroup of the node', call(8, pack('LLL', fileno $group, $connect, 10)));
tried('that traces, by the token', program(2, 0, 1));
tried('of perf events, by the token', program(7, 0, 1));
tried('of devices, by the token', program(15, 6, 1));
tried('that are the machine\'s', call(11, pack 'L', 0));
