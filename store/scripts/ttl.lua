-- Shared by every script that writes: the TTL policy of the app.
-- default and max are milliseconds, 0 = none. Codes: -1 ttl_required, -2 ttl_too_long.

-- kept says whether a write that leaves the TTL of an existing key alone agrees with the maximum.
local function kept(key, max)
  if max == 0 then return 0 end
  local left = redis.call('PTTL', key)
  if left == -1 then return -1 end
  if left > max then return -2 end
  return 0
end

-- lifetime returns the arguments of SET for a key that is created: those given, or the default.
local function lifetime(mode, ms, default)
  if mode == 'px' then return {'PX', ms} end
  if mode == 'pxat' then return {'PXAT', ms} end
  if default > 0 then return {'PX', string.format('%.0f', default)} end
  return {}
end
