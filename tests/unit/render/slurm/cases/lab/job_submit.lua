local TYPES = {}
local INSTEAD = "they have no types here, ask for --gpus=1 instead"
local QOS = {}
local ACCOUNTS = {}
local PARTITIONS = {["ml-cpu"] = {["gpus"] = 0, ["mem"] = 0}, ["ml-gpu"] = {["gpus"] = 4, ["mem"] = 30720}}
local WITH_GPUS = {"ml-gpu"}

-- Say which limit a job is beyond by itself: whose it is, what it allows, and what to do. SLURM alone
-- refuses, or lets the job wait; it sends what is said here along with either (job_submit_user_msg
-- in proc_req.c of slurmctld, 22.05 and 24.11). So nothing that SLURM takes is refused here, also
-- where somebody has changed a limit with sacctmgr.
-- QOS, ACCOUNTS and PARTITIONS come from the definition, in sacctmgr's names; times are in minutes, memory in MiB.
-- What others use is not known: slurm.jobs can have records that slurmctld has freed in the same
-- second (_update_jobs_global of job_submit_lua.c), and nothing else is handed to Lua.

local WORDS = {cpu = "CPUs", mem = "MiB of memory", node = "nodes", ["gres/gpu"] = "GPUs"}
local WHOM = {
    MaxTRESPerJob = "a job",
    MaxTRESPerUser = "the jobs of a user together",
    MaxTRESPerAccount = "the jobs of an account together",
    GrpTRES = "all of its jobs together",
}
local SUBMITTED = {
    MaxSubmitJobsPerUser = "a user",
    MaxSubmitJobsPerAccount = "an account",
    GrpSubmitJobs = "all together",
    MaxSubmitJobs = "a user",
}

-- The texts of a job that are read here, and the longest that SLURM takes (_test_job_desc_fields in
-- job_mgr.c, the same from 21.08 to 25.11).
local LONGEST = {
    account = 1024, array_inx = 4096, mem_per_tres = 1024, partition = 1024, qos = 1024,
    tres_per_job = 1024, tres_per_node = 1024, tres_per_socket = 1024, tres_per_task = 1024,
}

-- SLURM refuses a job with a longer text, but only after this script: while it runs, slurmctld holds
-- its locks and answers nobody.
local function is_too_long(job)
    for field, longest in pairs(LONGEST) do
        if #(job[field] or "") > longest then
            return true
        end
    end
    return false
end

-- A number that was asked for; nil for NO_VAL and, of a field with 64 bits, for what is above.
local function given(number)
    if number and number < 4294967294 then
        return number
    end
    return nil
end

local function clock(minutes)
    local days = math.floor(minutes / 1440)
    local text = string.format("%02d:%02d:00", math.floor(minutes / 60) % 24, minutes % 60)
    return days > 0 and days .. "-" .. text or text
end

-- Add the GPUs of a text such as gres:gpu:TYPE:1 (up to 22.05), gres/gpu:TYPE=1 or gres/gpu:2,
-- times a factor, to a table, by TRES.
local function add_gpus(found, text, factor)
    for entry in (text or ""):gmatch("[^,]+") do
        local name, rest = entry:gsub("^gres[:/]", ""):match("^(%a+)(.*)$")
        if name == "gpu" then
            local kind, count = rest:match("^[:=]([^:=]+)[:=](%d+)$")
            kind = kind or rest:match("^[:=]([^:=]+)$")
            if kind and kind:match("^%d+$") and not TYPES[kind] then
                kind, count = nil, kind
            end
            local number = (tonumber(count) or 1) * factor
            found["gres/gpu"] = (found["gres/gpu"] or 0) + number
            if kind then
                found["gres/gpu:" .. kind] = (found["gres/gpu:" .. kind] or 0) + number
            end
        end
    end
end

-- What a job asks for at least, by TRES: for all of it, and on each node.
local function asked(job)
    local nodes, cpus = given(job.min_nodes), given(job.min_cpus)
    local per_node, whole = {}, {cpu = cpus, node = nodes}
    add_gpus(per_node, job.tres_per_node, 1)
    local ways = {{}, {}, {}}
    add_gpus(ways[1], job.tres_per_node, nodes or 1)
    add_gpus(ways[2], job.tres_per_job, 1)
    add_gpus(ways[3], job.tres_per_task, given(job.num_tasks) or 1)
    for _, way in ipairs(ways) do
        for tres, number in pairs(way) do
            whole[tres] = math.max(whole[tres] or 0, number)
        end
    end
    per_node.mem = given(job.min_mem_per_node)
    -- --mem=0 is all memory of the node.
    if per_node.mem and per_node.mem > 0 then
        whole.mem = per_node.mem * (nodes or 1)
    elseif given(job.min_mem_per_cpu) then
        whole.mem = job.min_mem_per_cpu * (cpus or 1)
    end
    return whole, per_node
end

-- How many jobs an array is: of 1-9:2,12%4 there are 6; 1 for what is no array.
local function tasks(text)
    local count = 0
    for part in (text or ""):gsub("%%.*", ""):gmatch("[^,]+") do
        -- Two runs of digits with nothing certain between them would take the square of their length.
        local first, last, step = (part .. ":"):match("^(%d+)%-(%d+):(%d*):?$")
        if first then
            step = math.max(tonumber(step) or 1, 1)
            count = count + math.floor((last - first) / step) + 1
        else
            count = count + 1
        end
    end
    return math.max(count, 1)
end

-- The account of a job; nil where the definition does not have it.
local function account_of(job)
    return ACCOUNTS[(job.account or job.default_account or ""):lower()]
end

-- Whether SLURM takes the account of a job, as far as is known here. What it answers to others,
-- "Invalid account", is all that they are told: limits of an account are for its users. Of the
-- default account slurmctld has said that it is the user's.
local function has_account(job)
    local default = job.default_account
    if default and (job.account or default):lower() == default:lower() then
        return true
    end
    local account = account_of(job)
    return account and account.users[job.user_name]
end

-- Association and accounts of a job, from its user upwards.
local function associations(job)
    local levels = {}
    local account = account_of(job)
    local own = account and account.users[job.user_name]
    if own then
        levels[1] = {own, job.user_name .. " in account " .. account.name}
    end
    while account do
        levels[#levels + 1] = {account, "account " .. account.name}
        account = ACCOUNTS[account.parent]
    end
    return levels
end

-- The QoS that the association of a job allows: the nearest list holds.
local function allowed_qos(levels)
    for _, level in ipairs(levels) do
        local allowed = level[1].qos
        if allowed and #allowed > 0 then
            return allowed
        end
    end
    return {"normal"}
end

-- Whether a job names a QoS that its account does not allow: SLURM says "Invalid qos specification".
local function names_qos_of_others(job, levels)
    for _, name in ipairs(allowed_qos(levels)) do
        if not job.qos or job.qos:lower() == name:lower() then
            return false
        end
    end
    -- Of an account that the definition does not have, the list is not known.
    return #levels > 0
end

-- The QoS of the partition, which goes before that of the job.
local function kinds(job, partition, levels)
    local allowed = allowed_qos(levels)
    -- Of one QoS alone, that is the default.
    local name = job.qos or job.default_qos or (#allowed == 1 and allowed[1]) or nil
    local found = {}
    for _, one in ipairs({partition and partition.qos or "", name or "normal"}) do
        local qos = QOS[one:lower()]
        if qos then
            found[#found + 1] = {qos, "QoS " .. qos.name}
        end
    end
    return found
end

-- The first that limits it: its value, and who.
local function first(key, tres, ...)
    for _, levels in ipairs({...}) do
        for _, level in ipairs(levels) do
            local value = level[1][key]
            if tres then
                value = value and value[tres]
            end
            if value then
                return value, level[2]
            end
        end
    end
    return nil
end

-- The least that an account and those above it allow all their jobs.
local function least(key, tres, levels)
    local value, who
    for _, level in ipairs(levels) do
        local one = first(key, tres, {level})
        if one and (not value or one < value) then
            value, who = one, level[2]
        end
    end
    return value, who
end

local function words(tres)
    local kind = tres:match("^gres/gpu:(.*)$")
    return WORDS[tres] or (kind and "GPUs of type " .. kind) or tres
end

-- Whether SLURM refuses what is beyond a limit by itself, also one of a user or an account: only
-- where one of the job's QoS has DenyOnLimit (strict_checking in acct_policy.c).
local function refused(qos)
    for _, level in ipairs(qos) do
        if level[1].DenyOnLimit then
            return true
        end
    end
    return false
end

-- What becomes of a job that is not refused.
local function otherwise(qos)
    return refused(qos) and "" or "; as it is, it waits for ever"
end

-- What the job's owner can do.
local function remedy(less, qos)
    return "ask for " .. less .. ", or for another QoS or account that allows it" .. otherwise(qos)
end

-- `key` is SLURM's name of the limit.
local function beyond(value, who, key, whom, number, what, instead)
    if value and number > value then
        return string.format("%s allows %s at most %d %s (%s), and this job asks for %d: %s", who, whom,
            value, what, key, number, instead)
    end
    return nil
end

local function of_tres(job, whole, per_node, qos, levels)
    -- In an order that does not change from job to job.
    local names = {}
    for tres in pairs(whole) do
        names[#names + 1] = tres
    end
    table.sort(names)
    for _, tres in ipairs(names) do
        for _, key in ipairs({"MaxTRESPerUser", "MaxTRESPerJob", "MaxTRESPerAccount", "GrpTRES"}) do
            local value, who = first(key, tres, qos)
            if not value and key == "MaxTRESPerJob" then
                value, who = first(key, tres, levels)
            elseif not value and key == "GrpTRES" then
                value, who = least(key, tres, levels)
            end
            local said = beyond(value, who, key, WHOM[key], whole[tres], words(tres), remedy("less", qos))
            if said then
                return said
            end
        end
    end
    for tres, number in pairs(per_node) do
        local value, who = first("MaxTRESPerNode", tres, qos, levels)
        local said = beyond(value, who, "MaxTRESPerNode", "a job on each node", number, words(tres),
            remedy("less", qos))
        if said then
            return said
        end
    end
    return nil
end

-- The first QoS that wants more of each job than this one asks for.
local function of_least(job, whole, qos)
    for _, tres in ipairs({"gres/gpu", "node", "cpu", "mem"}) do
        local value, who = first("MinTRESPerJob", tres, qos)
        -- By socket there may be enough of them.
        local unknown = tres == "gres/gpu" and job.tres_per_socket
        -- What a job does not say of CPUs, memory and nodes, it gets as the partition has it.
        local number = whole[tres] or (tres == "gres/gpu" and 0)
        if value and number and number < value and not unknown then
            local add = ({["gres/gpu"] = "--gpus", node = "--nodes", cpu = "--ntasks", mem = "--mem"})[tres]
            -- Of CPUs a job can get more than it asks for: those of whole cores.
            local waits = tres == "cpu" and "" or otherwise(qos)
            return string.format("%s takes only jobs with %d or more %s (MinTRESPerJob), and this one asks "
                .. "for %s: add %s=%d, or use another partition or QoS%s", who, value, words(tres),
                number == 0 and "none" or number, add, value, waits)
        end
    end
    return nil
end

-- The time that a partition gives a job that asks for none, before SLURM looks at limits
-- (_valid_job_part in job_mgr.c); nil: the job gets what limits allow.
local function time_given(job, partition)
    return job.time_limit == 4294967294 and given(partition and partition.default_time) or nil
end

-- What running jobs may still use: TRES times minutes.
local function of_minutes(job, whole, qos, levels, partition)
    local minutes = given(job.time_limit) or time_given(job, partition)
    if not minutes and job.time_limit == 4294967294 and refused(qos) then
        -- Where SLURM refuses, it gives such a job what is allowed, in whole minutes
        -- (_validate_tres_time_limits in acct_policy.c).
        minutes = 1
    elseif not minutes and job.time_limit == 4294967294 then
        minutes = first("MaxWallDurationPerJob", nil, qos, levels)
    end
    for _, tres in ipairs({"gres/gpu", "node", "cpu"}) do
        local value, who = first("GrpTRESRunMins", tres, qos)
        if not value then
            value, who = least("GrpTRESRunMins", tres, levels)
        end
        if value and minutes and whole[tres] and whole[tres] * minutes > value then
            return string.format("%s allows all of its jobs together at most %d minutes of %s "
                .. "(GrpTRESRunMins), and this job asks for %d (%d for %s): ask for less time or fewer %s%s",
                who, value, words(tres), whole[tres] * minutes, whole[tres], clock(minutes), words(tres),
                otherwise(qos))
        end
    end
    return nil
end

-- SLURM always refuses these.
local FEWER = "submit fewer tasks of the array, and the others when these have ended"
local ELSEWHERE = "use another QoS or account that allows it"

local function of_count(job, qos, levels)
    local number = tasks(job.array_inx)
    local instead = number > 1 and FEWER or ELSEWHERE
    for _, key in ipairs({"MaxSubmitJobsPerUser", "MaxSubmitJobsPerAccount", "GrpSubmitJobs"}) do
        local value, who = first(key, nil, qos)
        if not value and key == "GrpSubmitJobs" then
            value, who = least(key, nil, levels)
        end
        local said = beyond(value, who, key, SUBMITTED[key], number, "jobs, waiting ones too", instead)
        if said then
            return said
        end
    end
    if first("MaxSubmitJobsPerUser", nil, qos) or first("MaxSubmitJobsPerAccount", nil, qos) then
        return nil
    end
    local value, who = first("MaxSubmitJobs", nil, levels)
    return beyond(value, who, "MaxSubmitJobs", SUBMITTED.MaxSubmitJobs, number, "jobs, waiting ones too", instead)
end

local function of_time(job, qos, levels, partition)
    local value, who = first("MaxWallDurationPerJob", nil, qos, levels)
    local minutes = time_given(job, partition)
    local said = "this one asks for none and has "
    if job.time_limit ~= 4294967294 then
        minutes, said = job.time_limit, "this one asks for "
    end
    -- A job that asks for no time, and has none of the partition, gets what it may have.
    if not value or not minutes or minutes <= value then
        return nil
    end
    local wanted = minutes >= 4294967294 and "no limit" or clock(minutes)
    return string.format("%s allows a job at most %s (MaxWall), and %s%s: %s", who, clock(value), said,
        wanted, remedy("--time=" .. clock(value), qos))
end

-- The time that limits give a job that asks for none; nil: they give none. Where SLURM refuses what is
-- beyond a limit, the minutes that are allowed go before.
local function time_of_limits(whole, qos, levels)
    local value, who = first("MaxWallDurationPerJob", nil, qos, levels)
    for tres, number in pairs(refused(qos) and whole or {}) do
        local all, whose = first("GrpTRESRunMins", tres, qos)
        if not all then
            all, whose = least("GrpTRESRunMins", tres, levels)
        end
        if all and number > 0 and (not value or all / number < value) then
            value, who = math.floor(all / number), whose
        end
    end
    return value, who
end

-- SLURM gives a job that time also where it is longer than the partition's (_set_time_limit in
-- acct_policy.c), and then says that the configuration of the partition is not available.
local function of_partition(job, partition, whole, qos, levels)
    local most = given(partition and partition.max_time)
    if job.time_limit ~= 4294967294 or not most or time_given(job, partition) then
        return nil
    end
    local minutes, who = time_of_limits(whole, qos, levels)
    if not minutes or minutes <= most then
        return nil
    end
    return string.format("partition %s allows a job at most %s (MaxTime), and this one asks for none and has "
        .. "%s of %s: ask for --time=%s", partition.name, clock(most), clock(minutes), who, clock(most))
end

-- The partition of a job, of several the first: SLURM refuses a job that one of them refuses.
local function partition_of(job, partitions)
    local name = (job.partition or ""):match("^[^,]+")
    if name then
        return partitions[name]
    end
    for _, partition in pairs(partitions) do
        if partition.flag_default == 1 then
            return partition
        end
    end
    return nil
end

-- What somebody can do who asked for GPUs in another partition: WITH_GPUS names those that have some.
local function with_gpus(partitions)
    local names = {}
    for _, name in ipairs(WITH_GPUS) do
        if partitions[name] then
            names[#names + 1] = "--partition=" .. name
        end
    end
    return "ask for " .. (#names > 0 and table.concat(names, " or ") or "none")
end

-- GPUs in a partition without any, and more memory for each of them than a node has. PARTITIONS has
-- those of the definition: `gpus` of a node, and `mem`, MiB of a node for each; 0 where there are none.
-- Of `partitions` slurmctld hands over those that the user may use: of others nothing is said.
local function of_gpus(job, whole, partition, partitions)
    local names = job.partition or (partition and partition.name) or ""
    local asked_of_each = tonumber((job.mem_per_tres or ""):match("gpu[:=](%d+)"))
    local is_asked = (whole["gres/gpu"] or 0) > 0 or job.tres_per_socket
    for name in names:gmatch("[^,]+") do
        local has = partitions[name] and PARTITIONS[name]
        if has and is_asked and has.gpus == 0 then
            return string.format("partition %s has no GPUs, and this job asks for %s: %s", name,
                whole["gres/gpu"] or "some", with_gpus(partitions))
        elseif has and asked_of_each and has.gpus > 0 and asked_of_each > has.mem then
            return string.format("partition %s has %d MiB of memory for each GPU, and this job asks for %d: "
                .. "other GPUs of the node would have none left; ask for --mem-per-gpu=%d or less", name,
                has.mem, asked_of_each, has.mem)
        end
    end
    return nil
end

-- The sentence about the first limit that a job is beyond; nil if there is none.
local function limit_said(job, partitions)
    if is_too_long(job) then
        return nil
    end
    local partition = partition_of(job, partitions)
    local whole, per_node = asked(job)
    local said = of_gpus(job, whole, partition, partitions)
    if said or not has_account(job) then
        return said
    end
    local levels = associations(job)
    if names_qos_of_others(job, levels) then
        return nil
    end
    local qos = kinds(job, partition, levels)
    return of_time(job, qos, levels, partition)
        or of_partition(job, partition, whole, qos, levels)
        or of_tres(job, whole, per_node, qos, levels)
        or of_least(job, whole, qos)
        or of_minutes(job, whole, qos, levels, partition)
        or of_count(job, qos, levels)
end

-- Refuse a job that asks for a type of GPU that no node has, and list the types that exist.
-- TYPES and INSTEAD come from the definition; everything else that a job asks for is SLURM's own.

-- ESLURM_INVALID_GRES of slurm/slurm_errno.h, the same from 21.08 to 25.11: the client says
-- "Invalid generic resource (gres) specification" after what log_user says. Its name is known to
-- Lua only from 23.02 on.
local REFUSED = 2072

-- All ways to ask (--gres, --gpus, --gpus-per-*, --tres-per-task) end in one of these.
local FIELDS = {"tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task"}

-- The type in a text such as gres:gpu:TYPE:1 (up to 22.05), gres/gpu:TYPE=1 or gpu:TYPE; nil if
-- there is none.
local function type_in(text)
    local name, rest = text:gsub("^gres[:/]", ""):match("^(%a+)[:=]([^:=]+)")
    -- Shards are parts of GPUs and have their types.
    if name ~= "gpu" and name ~= "shard" then
        return nil
    end
    -- A count, which can have a suffix such as K.
    if rest:match("^%d+%a?$") and not TYPES[rest] then
        return nil
    end
    return rest
end

local function verdict(job)
    if is_too_long(job) then
        return slurm.SUCCESS
    end
    for _, field in ipairs(FIELDS) do
        for text in (job[field] or ""):gmatch("[^,]+") do
            local asked = type_in(text)
            if asked and not TYPES[asked] then
                slurm.log_user("%s", 'no node has GPUs of type "' .. asked .. '"; ' .. INSTEAD)
                return REFUSED
            end
        end
    end
    return slurm.SUCCESS
end

-- An error in this script must not block jobs.
local function judge(job)
    local ran, result = pcall(verdict, job)
    if not ran then
        slurm.log_error("%s", "job_submit.lua: " .. tostring(result))
        return slurm.SUCCESS
    end
    return result
end

-- Modifying has no sentence about limits: a job's other wishes are not in `job` then, and 22.05 sends
-- none to the client.
local function inform(job, partitions)
    local ran, result = pcall(limit_said, job, partitions)
    if not ran then
        slurm.log_error("%s", "job_submit.lua: " .. tostring(result))
    elseif result then
        slurm.log_user("%s", result)
    end
end

-- slurmctld does not start without both functions and this return value (src/lua/slurm_lua.c).
function slurm_job_submit(job, partitions, uid)
    local code = judge(job)
    if code == slurm.SUCCESS then
        inform(job, partitions)
    end
    return code
end

function slurm_job_modify(job, record, partitions, uid)
    return judge(job)
end

return slurm.SUCCESS
