#!/bin/sh
# Collects what `chainbreak explain --dump` and `diagnose` read of a node: rules, sets, connections, routes, addresses, settings; in Felix's container its maps.
# On the node, as root: sh collect.sh [FOLDER]; it makes FOLDER and FOLDER.tgz. With - all of it goes to standard output.
# Nothing else is changed, and no API is asked: no Secret is read. Settings named after keys and secrets are left out.
# A dump of more than MOST bytes (32 MiB unless set) is left out whole: half of one would mislead.
set -u
umask 077
export LC_ALL=C PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
most=${MOST:-33554432}
to=${1:-chainbreak-$(uname -n)-$(date -u +%Y%m%dT%H%M%SZ)}
case $to in
-) folder=$(mktemp -d) || exit 1; trap 'rm -rf "$folder"' EXIT ;;
*) folder=$to; mkdir "$folder" || exit 1 ;;
esac

left_out() { echo "left out: $*" | tee -a "$folder/left-out" >&2; }

# dump FILE COMMAND…
dump() {
	file=$folder/$1
	shift
	command -v "$1" >/dev/null 2>&1 || { left_out "$*: $1 is not here"; return; }
	(ulimit -f $((most / 512 + 1)); "$@") >"$file" 2>"$file.err"
	code=$? size=$(($(wc -c <"$file")))
	if [ "$size" -gt "$most" ]; then
		left_out "$*: more than $most bytes"
		rm -f "$file"
	elif [ $code -ne 0 ]; then
		left_out "$*: exit code $code, $(head -n 1 "$file.err")"
		rm -f "$file"
	fi
	[ -s "$file" ] || rm -f "$file"
	rm -f "$file.err"
}

# Not every user may list which tables of legacy iptables there are.
tables() { for table in raw mangle nat filter; do "$1-save" -c -t $table || return; done; }
policies() { for p in /var/run/calico/bpf/policy/*.json; do [ ! -e "$p" ] || { printf '%s:' "$p"; cat "$p"; }; done; }
settings() { sysctl -a 2>/dev/null | grep '^net\.' | grep -Eiv '^[^=]*(key|secret)'; }

for family in iptables ip6tables; do
	names=/proc/net/${family%tables}_tables_names
	listed=$(cat "$names" 2>/dev/null) && may_list=yes || may_list=no
	case $($family --version 2>/dev/null) in
	*legacy*)
		if [ -e "$names" ] && [ $may_list = no ]; then dump $family tables $family; else dump $family $family-save -c; fi
		if command -v $family-nft-save >/dev/null 2>&1; then dump $family-nft $family-nft-save -c; fi ;;
	*)
		dump $family $family-save -c
		if [ -n "$listed" ] && command -v $family-legacy-save >/dev/null 2>&1; then dump $family-legacy $family-legacy-save -c; fi ;;
	esac
done
dump nft nft list ruleset; dump ipset ipset save; dump conntrack conntrack -L; dump statistics conntrack -S
dump routes ip route show table all; dump rules ip rule; dump addresses ip addr; dump sysctls settings; if ls /sys/fs/bpf/tc/globals/cali_v4_nat_fe* >/dev/null 2>&1 && command -v calico-node >/dev/null; then for map in nat conntrack routes ipsets; do dump felix-$map-map calico-node -bpf $map dump; done; fi
dump felix-policies policies; left_out "settings whose names have key or secret in them"
if [ "$to" = - ]; then
	for file in "$folder"/*; do echo "== ${file##*/}"; cat "$file"; done
	exit; fi
if command -v tar >/dev/null 2>&1 && tar -czf "$folder.tgz" "$folder"; then echo "$folder.tgz"; fi
echo "$folder"
