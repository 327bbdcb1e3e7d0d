//! Which registers are alive where a block starts. The search costs what its graph is large, however its
//! branches lie: a return from a function called through registers may go on at thousands of places.

/// What is alive where each block starts: the least sets that hold a block's own uses, and what is alive
/// where it may go on less what it defines. A block is looked at again when a successor's set grew. `None`
/// after more steps than `most`, of which a word of a set at each way out of a block is one.
pub(super) fn alive_at_start(
    uses: &[Vec<u64>],
    defines: &[Vec<u64>],
    successors: &[Vec<usize>],
    most: usize,
) -> Option<Vec<Vec<u64>>> {
    let mut predecessors = vec![Vec::new(); uses.len()];
    for (block, after) in successors.iter().enumerate() {
        after.iter().for_each(|successor| predecessors[*successor].push(block));
    }
    let mut alive = uses.to_vec();
    // From the last block to the first, and again, for what is alive flows backwards.
    let mut waiting = vec![true; uses.len()];
    let mut steps = 0;
    while waiting.contains(&true) {
        for block in (0..uses.len()).rev() {
            if !std::mem::take(&mut waiting[block]) {
                continue;
            }
            steps += uses[block].len() * (1 + successors[block].len());
            if steps > most {
                return None;
            }
            let into = alive_into(block, uses, defines, successors, &alive);
            if into != alive[block] {
                alive[block] = into;
                predecessors[block].iter().for_each(|before| waiting[*before] = true);
            }
        }
    }
    Some(alive)
}

/// What is alive where one block starts, by what is known of the others.
fn alive_into(
    block: usize,
    uses: &[Vec<u64>],
    defines: &[Vec<u64>],
    successors: &[Vec<usize>],
    alive: &[Vec<u64>],
) -> Vec<u64> {
    let mut into = vec![0; uses[block].len()];
    for successor in &successors[block] {
        into.iter_mut().zip(&alive[*successor]).for_each(|(into, out)| *into |= out);
    }
    into.iter_mut().zip(&defines[block]).for_each(|(into, defines)| *into &= !defines);
    into.iter_mut().zip(&uses[block]).for_each(|(into, uses)| *into |= uses);
    into
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of registers used and defined, and where each goes on.
    struct Graph {
        uses: Vec<Vec<u64>>,
        defines: Vec<Vec<u64>>,
        successors: Vec<Vec<usize>>,
    }

    impl Graph {
        fn new(successors: Vec<Vec<usize>>, words: usize) -> Graph {
            let nothing = vec![vec![0; words]; successors.len()];
            Graph { uses: nothing.clone(), defines: nothing, successors }
        }

        fn searched(&self, most: usize) -> Option<Vec<Vec<u64>>> {
            alive_at_start(&self.uses, &self.defines, &self.successors, most)
        }

        /// Steps that look at every block once.
        fn size(&self) -> usize {
            self.uses
                .iter()
                .zip(&self.successors)
                .map(|(uses, to)| uses.len() * (1 + to.len()))
                .sum()
        }

        /// The same by sweeps over all blocks until nothing grows, and the steps of it.
        fn swept(&self) -> (Vec<Vec<u64>>, usize) {
            let (mut alive, mut steps) = (self.uses.clone(), 0);
            loop {
                let before = alive.clone();
                for block in (0..alive.len()).rev() {
                    alive[block] =
                        alive_into(block, &self.uses, &self.defines, &self.successors, &alive);
                }
                steps += self.size();
                if alive == before {
                    return (alive, steps);
                }
            }
        }
    }

    fn noise(state: &mut u64) -> usize {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as usize
    }

    #[test]
    fn what_is_alive_is_what_sweeps_over_everything_find() {
        let mut state = 1;
        for _ in 0..500 {
            let blocks = 1 + noise(&mut state) % 40;
            let ways = |state: &mut u64| {
                (0..noise(state) % 4).map(|_| noise(state) % blocks).collect::<Vec<usize>>()
            };
            let successors = (0..blocks).map(|_| ways(&mut state)).collect();
            let mut graph = Graph::new(successors, 1 + noise(&mut state) % 2);
            for block in 0..blocks {
                for word in 0..graph.uses[block].len() {
                    graph.uses[block][word] = 1 << (noise(&mut state) % 64);
                    graph.defines[block][word] = (noise(&mut state) as u64) << 16;
                }
            }
            assert_eq!(graph.searched(usize::MAX), Some(graph.swept().0));
        }
    }

    /// Calls through registers, any of which may enter any function, and returns that may go on behind any
    /// call; before them blocks of which each branches back to the one before.
    fn indirect_calls(calls: usize, back: usize) -> Graph {
        let first_return = back + 2 * calls;
        let mut successors: Vec<Vec<usize>> =
            (0..back).map(|block| vec![block.max(1) - 1]).collect();
        for call in 0..calls {
            successors.push((0..calls).map(|function| first_return + function).collect());
            let next = back + 2 * call + 2;
            successors.push(vec![if call + 1 < calls { next } else { 0 }]);
        }
        let behind_calls: Vec<usize> = (0..calls).map(|call| back + 2 * call + 1).collect();
        successors.extend((0..calls).map(|_| behind_calls.clone()));
        let mut graph = Graph::new(successors, 1);
        graph.uses[0][0] = 1;
        for call in 0..calls {
            graph.uses[back + 2 * call + 1][0] = 2 << (call % 62);
        }
        graph
    }

    #[test]
    fn modules_of_many_indirect_calls_cost_a_few_looks_at_each_block() {
        let graph = indirect_calls(100, 400);
        let few = 6 * graph.size();
        let (alive, steps) = graph.swept();
        assert!(steps > 40 * few, "sweeps over everything take {steps} steps, {few} are few");
        assert_eq!(graph.searched(few), Some(alive), "within {few} steps");
        assert_eq!(graph.searched(graph.size() - 1), None, "every block is looked at");
    }
}
