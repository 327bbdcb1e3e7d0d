//! Arguments as the bytes of a kernel's parameters, their buffers made on the way.
//! Invariant: a parameter is filled by one argument that fits it, or there is no launch.

use super::Given;
use super::argument::{self, Argument, Piece};
use super::buffer::{self, Made};
use super::error::{self, RunError};
use super::tensor_map;
use ptx_vm::{Entry, Memory, Parameter, TENSOR_MAP_BYTES};

/// Makes the buffers and lays the parameters out.
pub fn lay(
    entry: &Entry,
    texts: &[String],
    memory: &mut Memory,
) -> Result<(Vec<Given>, Vec<u8>), RunError> {
    let wanted = entry.parameters();
    let parsed = texts.iter().enumerate().map(|(number, text)| {
        argument::parse(text).map_err(|error| RunError::Argument {
            number,
            text: text.clone(),
            error,
        })
    });
    let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
    if wanted.len() != texts.len() {
        return Err(RunError::Count {
            entry: entry.name().to_owned(),
            signature: error::signature(entry),
            expected: wanted.len(),
            given: texts.len(),
        });
    }
    let mut bytes = vec![0; entry.parameter_bytes() as usize];
    let mut given = Vec::new();
    let mut taken = 0;
    for (number, ((parameter, argument), text)) in wanted.iter().zip(&parsed).zip(texts).enumerate()
    {
        let mut one = One { number, text, parameter, memory, taken: &mut taken };
        let (raw, what) = one.parameter(argument)?;
        let at = parameter.offset_bytes as usize;
        bytes[at..at + raw.len()].copy_from_slice(&raw);
        given.push(what);
    }
    Ok((given, bytes))
}

/// One argument on its way into its parameter.
struct One<'a> {
    number: usize,
    text: &'a str,
    parameter: &'a Parameter,
    memory: &'a mut Memory,
    /// Bytes of files and random numbers so far.
    taken: &'a mut u64,
}

impl One<'_> {
    fn refuse(&self, why: String) -> RunError {
        RunError::Parameter {
            number: self.number,
            text: self.text.to_owned(),
            parameter: self.parameter.name.clone(),
            why,
        }
    }

    /// The parameter's bytes.
    fn parameter(&mut self, argument: &Argument) -> Result<(Vec<u8>, Given), RunError> {
        let parameter = self.parameter;
        let size = parameter.size_bytes as usize;
        let scalar = |value: u64| value.to_le_bytes()[..size].to_vec();
        let kind = error::kind(parameter);
        let is_pointer = size == 8 && kind.contains("buffer");
        let raw = match argument {
            Argument::Bare(text) => {
                scalar(error::bare_bits(parameter, text).map_err(|why| self.refuse(why))?)
            }
            Argument::Scalar(element, bits) => scalar(
                error::scalar_bits(parameter, *element, *bits).map_err(|why| self.refuse(why))?,
            ),
            Argument::Null | Argument::Buffer(_) if !is_pointer => {
                return Err(self.refuse(format!("takes {kind}")));
            }
            Argument::Bytes(raw) if raw.len() != size => {
                return Err(self.refuse(format!("has {size} bytes, {} are given", raw.len())));
            }
            Argument::TensorMap(..) if size != TENSOR_MAP_BYTES => {
                let why =
                    format!("has {size} bytes, a tensor map 128: struct:0=… puts one into it");
                return Err(self.refuse(why));
            }
            Argument::Struct(pieces) => return self.of_pieces(pieces),
            Argument::Null | Argument::Bytes(_) | Argument::Buffer(_) | Argument::TensorMap(..) => {
                let (raw, made) = self.piece(argument, self.text)?;
                return Ok((raw, made.map_or(Given::Scalar(self.text.to_owned()), Given::Buffer)));
            }
        };
        Ok((raw, Given::Scalar(self.text.to_owned())))
    }

    /// A struct's bytes, zeros where no piece is.
    fn of_pieces(&mut self, pieces: &[Piece]) -> Result<(Vec<u8>, Given), RunError> {
        let size = self.parameter.size_bytes as usize;
        let mut bytes = vec![None; size];
        let mut buffers = Vec::new();
        for Piece { offset_bytes, text, argument } in pieces {
            let (raw, made) = self.piece(argument, text)?;
            let end = *offset_bytes as usize + raw.len();
            let place = bytes.get_mut(*offset_bytes as usize..end).ok_or_else(|| {
                self.refuse(format!("has {size} bytes; `{text}` at {offset_bytes} ends at {end}"))
            })?;
            if place.iter().any(Option::is_some) {
                let why = format!("has another piece where `{text}` at {offset_bytes} is");
                return Err(self.refuse(why));
            }
            place.iter_mut().zip(raw).for_each(|(to, byte)| *to = Some(byte));
            buffers.extend(made);
        }
        let bytes = bytes.into_iter().map(Option::unwrap_or_default).collect();
        Ok((bytes, Given::Struct { text: self.text.to_owned(), buffers }))
    }

    /// Bytes of what says its own size.
    fn piece(
        &mut self,
        argument: &Argument,
        text: &str,
    ) -> Result<(Vec<u8>, Option<Made>), RunError> {
        Ok(match argument {
            Argument::Null => (vec![0; 8], None),
            Argument::Bytes(raw) => (raw.clone(), None),
            Argument::Scalar(element, bits) => (element.bytes(*bits), None),
            Argument::Buffer(buffer) => {
                let made = buffer::make(self.memory, self.number, text, buffer, self.taken)?;
                (self.memory.address(made.id, 0).to_le_bytes().to_vec(), Some(made))
            }
            Argument::TensorMap(wanted, buffer) => {
                let made = buffer::make(self.memory, self.number, text, buffer, self.taken)?;
                let address = self.memory.address(made.id, 0);
                let map = tensor_map::encode(wanted, &made, address);
                (map.map_err(|why| self.refuse(why))?.to_vec(), Some(made))
            }
            // `argument::parse` lets neither into a struct.
            Argument::Bare(_) | Argument::Struct(_) => {
                return Err(self.refuse(format!("takes {}", error::kind(self.parameter))));
            }
        })
    }
}
