"""What root of a compute node may try, to have a program run on other hosts.

Each way is a shell script for the node. Those that need other machines are in tests/vm (NFS),
tests/cloud and tests/unit/plugins (links); docs/security.md has them all.
"""

from dataclasses import dataclass

PROGRAMS = "/opt/fallen"
"""On all hosts, as programs in a shared home are; no unit hides this folder."""
OWN = "/opt/fallen-own"
"""On the node: the attacker's ssh key, that of an administrator, and a slurm.conf."""

PRELUDE = """
exec 2>&1 </dev/null
as() { user=$1; shift; timeout 20 setpriv --reuid=$user --regid=$user --init-groups "$@"; }
options="-o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o LogLevel=ERROR
    -o UserKnownHostsFile=/dev/null"
# Each time from an address that is no node's: sshd refuses those of nodes, and sshd of Debian 13
# lets addresses wait that failed often.
login() {
    login=$1; shift
    for host in $OTHERS; do
        last=$(($(cat $OWN/last) + 1)); echo $last >$OWN/last
        ip address add $NETWORK.$last/24 dev eth0
        timeout 20 ssh -b $NETWORK.$last $options "$@" $login@$host $PROGRAM
        ip address del $NETWORK.$last/24 dev eth0
    done
}
"""
"""In front of each script. It has the names of NODE and the OTHERS, and in JOB the options of a job
of ada's. Root submits it: processes of hers are killed when her last job on the node is over."""


@dataclass(frozen=True)
class Way:
    """What root of the node tries, to have $PROGRAM run elsewhere."""

    name: str
    script: str
    says: str
    """The script prints this pattern: it came as far as it can."""
    seconds: float = 0
    """How long after the script the program may start at the latest."""


def key_in_the_home_of(whom: str, login: str, uid: int) -> Way:
    """Write a key into a home by the number of its owner, and log in."""
    return Way(
        f"key-in-the-home-of-{whom}",
        f"""
        owner="setpriv --reuid={uid} --regid={uid} --clear-groups"
        $owner mkdir -p /home/{login}/.ssh
        $owner cp $OWN/key.pub /home/{login}/.ssh/authorized_keys
        login {login} -i $OWN/key
        """,
        says="Permission denied",
    )


WAYS = (
    key_in_the_home_of("an-administrator", "chief", 20900),
    key_in_the_home_of("a-person", "ada", 20001),
    key_in_the_home_of("who-left-the-definition", "zoe", 20008),
    Way(
        # Then the administrator logs in.
        "start-up-files-of-an-administrator",
        """
        for file in profile bashrc bash_profile bash_login zshenv pam_environment ssh/rc forward; do
            as chief sh -c "echo $PROGRAM >>/home/chief/.$file"
        done
        cat /home/chief/.bash_login
        """,
        says=PROGRAMS,
    ),
    Way(
        "keys-of-the-node",
        """
        keys=$(grep -rlE 'BEGIN [A-Z ]*PRIVATE KEY' /etc /root /home /var $OWN/key)
        for user in root slurm chief ada; do login $user $(printf ' -i %s' $keys); done
        login root -o HostbasedAuthentication=yes -o EnableSSHKeysign=yes
        echo $keys
        """,
        says=r"Permission denied(.|\n)*/etc/ssh/ssh_host_ed25519_key",
    ),
    Way(
        "key-of-an-administrator-that-came-to-the-node",
        """
        for host in $OTHERS; do
            timeout 20 ssh $options -i $OWN/chief chief@$host $PROGRAM
        done
        """,
        says="Permission denied",
    ),
    Way(
        "orders-of-an-administrator",
        """
        scontrol setdebug debug
        scontrol show config | grep '^SlurmctldDebug '
        scontrol setdebug info
        for host in $OTHERS; do scontrol create nodename=$host state=cloud; done
        scontrol update nodename=$NODE comment="\\$($PROGRAM)"
        scontrol update nodename=$NODE comment=
        as slurm scontrol takeover
        scontrol reconfigure
        """,
        says=r"SlurmctldDebug += debug\b",
    ),
    Way(
        "jobs-on-the-other-hosts",
        """
        for user in root slurm; do
            for host in $OTHERS; do
                as $user sbatch -w $host --output=/dev/null $PROGRAM
                as $user srun -w $host $PROGRAM
            done
        done
        """,
        says="Invalid node name",
    ),
    Way(
        "programs-in-slurm.conf",
        """
        cp -r /run/slurm/conf/. $OWN
        export SLURM_CONF=$OWN/slurm.conf
        for key in MailProg PrologSlurmctld EpilogSlurmctld ResumeProgram SuspendProgram; do
            sed -i /^$key=/d $SLURM_CONF
            echo $key=$PROGRAM >>$SLURM_CONF
        done
        as slurm scontrol reconfigure
        sbatch $JOB --mail-type=ALL --wrap true
        """,
        says="Submitted batch job",
    ),
    Way(
        "words-of-a-job",
        """
        for word in "\\$($PROGRAM)" "'; $PROGRAM #" "|$PROGRAM" "]]..os.execute('$PROGRAM')--"; do
            sbatch $JOB --mail-type=ALL --mail-user="$word" --job-name="$word" \
                --comment="$word" --wrap true
        done
        """,
        says="(Submitted batch job.*\n){4}",
    ),
    Way(
        "burst-buffer-of-a-job",
        """
        cat >$OWN/job <<END
#!/bin/sh
#DW stage_in source=\\$($PROGRAM)
#BB_LUA os.execute("$PROGRAM")
END
        sbatch $JOB $OWN/job
        sbatch $JOB --bb="\\$($PROGRAM)" $OWN/job
        """,
        says="Submitted batch job",
    ),
    Way(
        # After the jobs: the node is drained when they are over.
        "program-of-a-trigger",
        """
        timeout 60 sh -c 'while squeue -h -u ada | grep .; do sleep 0.3; done' >/dev/null
        for user in slurm root; do
            as $user strigger --set --node=$NODE --drained --program=$PROGRAM
        done
        as slurm strigger --get
        scontrol update nodename=$NODE state=drain reason=fallen
        """,
        says=f"{PROGRAMS}|operation is presently disabled",
        # slurmctld starts the programs of triggers every 15 s (TRIGGER_INTERVAL).
        seconds=20,
    ),
    Way(
        # srun -Z asks no slurmctld; its first line shows that a slurmd does what it says.
        "tasks-for-the-daemons-of-the-other-hosts",
        """
        as slurm srun -Z -w $NODE id -un
        cp -r /run/slurm/conf/. $OWN
        export SLURM_CONF=$OWN/slurm.conf
        nodes=
        for host in $OTHERS; do
            for port in 6817 6818 6819; do
                echo NodeName=$host-$port NodeHostname=$host NodeAddr=$host Port=$port >>$SLURM_CONF
                nodes="$nodes $host-$port"
            done
        done
        for node in $nodes; do
            for user in root slurm; do as $user srun -Z -w $node $PROGRAM & done
        done
        wait
        """,
        says="(?m)^slurm$",
    ),
    Way(
        "program-of-an-archive",
        """
        for user in root slurm; do
            as $user sacctmgr -i archive dump script=$PROGRAM purgejobafter=120months
        done
        """,
        says="Connection refused",
    ),
    Way(
        "accounting",
        """
        as slurm sacctmgr -i modify user ada set adminlevel=Administrator
        as slurm sacctmgr shutdown
        as root sacct --allusers
        """,
        says="(Connection refused(.|\n)*){3}",
    ),
)
