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
