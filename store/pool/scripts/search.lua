-- For policies whose KEYS[3] is ring and KEYS[5] w.

-- found is the first of n sums, doubles in text from a place on, that is greater than x. They do not fall, and the last one is greater.
local function found(text, from, n, x)
  local low, high = 1, n
  while low < high do
    local middle = (low + high) / 2
    middle = middle - middle % 1
    if unpack('<d', text, from + 8 * middle - 8) > x then high = middle else low = middle + 1 end
  end
  return low
end

if bound then
  fits = function(m)
    local at_weight = call('ZRANK', KEYS[3], m) * 16
    return unpack('<d', call('GETRANGE', KEYS[5], at_weight, at_weight + 7)) > 0
  end
end
